-- The queue of waiters for an exclusive hold. Scripts of fair and read-write locks consist of the kind's
-- constants (fair_kind.lua, read_write_kind.lua), this file, the kind's functions (fair.lua, read_write.lua),
-- and the script.
-- KEYS: 1 the lock; 2 the queue: ids by the time (us) since when they wait; 3 positions, a hash: the same ids
-- by the time (us) at which the position ends in 16 digits, `:`, and the waiter's nonce. A grant carries the
-- nonce, so the waiter can tell the grant from any other client's message. Then the kind's own keys; last, if
-- tokens are wanted, their counter.
-- ARGV: 1 the publishing command, 2 `1` if the server knows all listeners, 3 the lock's channel, 4 its message,
-- 5 prefix of grant channels, 6 prefix of grant messages, then the kind's own. Unused arguments at the end are
-- left out. (Channels are no keys, see release.lua.)
-- Numbers are formatted here: the server's own conversion takes longer than most commands.
local clock

-- Limit of waiters, or of readers, that one call looks at: the server serves no other command meanwhile.
local BATCH = 100
-- Reply of a script that has looked at a whole batch and cannot answer yet. The client repeats the call.
local AGAIN = -3

-- The functions of a kind:
-- found(): the lock's state. `taken`: cannot be leased now. `other`: its mode, if of another kind of lock.
-- `holder`: id of the exclusive holder. `goes`: fields to remove when another id gets the lock. `vacant`:
-- taken without a holder.
-- lasts(lock): ms until the client has to ask again, if the lock is taken (-1: no end).
-- lease(id, millis, lock): leases the lock to the id.
-- free(over, lock): frees the lock, and tells other clients. `over`: ids whose positions have ended.
-- let_in(lock): the holder leaves; if readers come before the queue, gives them the lock and returns true.
-- gone(lock, id, began): called before the id, queued since `began`, leaves the queue.
-- bury(lock): removes the dead from a lock that stays with its holder.
local found, lasts, lease, free, let_in, gone, bury

-- The server's time in us, read on demand: most scripts find an empty queue, and need no time.
local function now()
    clock = clock or redis.call('time')
    return clock[1] * 1000000 + clock[2]
end

-- Arguments with which the command does nothing. (None for HSET and DEL; for RENAME if the key exists.)
local function harmless(name)
    if name == 'hset' then
        return KEYS[1], 'mode', ''
    elseif name == 'hdel' then
        return KEYS[1], ''
    elseif name == 'zrem' then
        return KEYS[2], ''
    elseif name == 'pexpire' then
        -- Before 7.0 this PEXPIRE runs, and must not shorten the life of the queue, not even without an end
        -- (-1). No client keeps a position for 60 s.
        return KEYS[2], redis.acl_check_cmd and '1' or math.max(redis.call('pttl', KEYS[2]), 60000)
    elseif name == 'zadd' then
        return KEYS[2], 'xx', '0', ''
    elseif name == 'pttl' then
        return KEYS[2]
    elseif name == 'zrange' then
        return KEYS[2], '0', '0'
    elseif name == 'hget' then
        return KEYS[3], ''
    elseif name == 'pubsub' then
        return ARGV[1] == 'spublish' and 'shardnumsub' or 'numsub', ARGV[5]
    elseif name == 'del' then
        return KEYS[1]
    elseif name == 'get' then
        return KEYS[#KEYS]
    elseif name == 'rename' then
        return KEYS[4], KEYS[4]
    elseif name == 'set' then
        return KEYS[6], '1', 'xx', 'keepttl'
    end
    return ARGV[5], ''
end

-- Fails unless the server would run each named command (false: skipped). Called before the first write: no
-- error undoes writes, or takes back a published grant.
local function must(...)
    local may = redis.acl_check_cmd
    for i = 1, select('#', ...) do
        local name = select(i, ...)
        if name and may then
            if not may(name, harmless(name)) then
                local called = name == 'pubsub' and name .. '|' .. harmless(name) or name
                error({ err = "NOPERM the user has no permissions to run the '" .. called .. "' command" })
            end
        elseif name and name ~= 'hset' and name ~= 'del' then
            -- Before 7.0: run the command itself, without effect. HSET is the first write wherever a refusal
            -- matters, and a key that DEL leaves expires.
            local reply = redis.pcall(name, harmless(name))
            if type(reply) == 'table' and reply.err then
                error(reply.err .. " (asked to run the '" .. name .. "' command)")
            end
        end
    end
end

-- `must` before a grant of the lock. The script's first write must be a removal: only the first write may be
-- refused for lack of memory, and a removal needs none. ZREM of an unknown id also checks the right to ZREM.
local function must_grant(...)
    must('hset', 'hdel', 'pexpire', ARGV[1], ...)
    redis.call('zrem', KEYS[2], '')
end

-- `must_grant`, for scripts that also enqueue a waiter.
local function must_write_and_grant(...)
    must_grant('zadd', 'pttl', ...)
end

-- PEXPIRE 0 deletes the key; `must` has checked the right to PEXPIRE.
local function end_lease(key)
    redis.call('pexpire', key, '0')
end

local function position(id)
    local kept = redis.call('hget', KEYS[3], id) or ''
    return (tonumber(string.sub(kept, 1, 16)) or 0) - now(), string.sub(kept, 18)
end

-- The time (us) since when the id waits: the earlier of its lasting position's time and its client's. (The
-- client's is earlier if the clock was set back; otherwise newcomers would overtake the id.)
local function since(id, waited)
    local began = redis.call('zscore', KEYS[2], id)
    local lasts = began and position(id) > 0
    return math.min(lasts and tonumber(began) or math.huge, waited and now() - waited or math.huge)
end

-- The first waiter in the queue whose client listens (if the server knows all listeners): `id`, `millis` left
-- of its position, and `nonce`. None if `id`, waiting since `began`, comes first. Also returns the earlier
-- ids whose positions have ended; if no client of a whole batch listens, the batch and `AGAIN`: each call
-- would skip the batch again, and a live waiter regains its place by the waiting time in its request.
local function first(id, began)
    local over, deaf, place = {}, {}, 0
    local count = 1
    while place < BATCH do
        local page = redis.call('zrange', KEYS[2], place == 0 and '0' or place, place == 0 and '0' or place + count - 1, 'withscores')
        local waiters, channels, last = {}, {}, #page < 2 * count
        for i = 1, #page, 2 do
            local waiter, its = page[i], tonumber(page[i + 1])
            if its > began or waiter == id and its == began then
                last = true
                break
            end
            if waiter ~= id then
                waiters[#waiters + 1] = waiter
                channels[#channels + 1] = ARGV[5] .. string.sub(waiter, 1, 36)
            end
        end
        -- Ask for listeners instead of counting a message's receivers: a client may hear a message although
        -- the server counts no subscriber, and would believe a grant that was never made.
        local listens = ARGV[1] == 'spublish' and 'shardnumsub' or 'numsub'
        local told = waiters[1] and ARGV[2] == '1' and redis.call('pubsub', listens, unpack(channels))
        local winner
        for i, waiter in ipairs(waiters) do
            if told and told[2 * i] == 0 then
                deaf[#deaf + 1] = waiter
            else
                local left, nonce = position(waiter)
                if left > 0 then
                    winner = { id = waiter, millis = string.format('%.0f', math.ceil(left / 1000)), nonce = nonce }
                    break
                end
                over[#over + 1] = waiter
            end
        end
        if winner or last then
            for _, waiter in ipairs(deaf) do
                over[#over + 1] = position(waiter) <= 0 and waiter or nil
            end
            return winner, over
        end
        place = place + count
        count = math.min(9 * count, BATCH - place)
    end
    for _, waiter in ipairs(deaf) do
        over[#over + 1] = waiter
    end
    return nil, over, AGAIN
end

-- Gives the id a position for `kept` ms, or renews it. HSET comes first, see `must`. (A key that the server
-- has evicted begins without an end.)
local function enqueue(id, kept, began, nonce)
    redis.call('hset', KEYS[3], id, string.format('%016.0f:%s', now() + kept * 1000, nonce))
    redis.call('zadd', KEYS[2], string.format('%.0f', began), id)
    if math.min(redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3])) < tonumber(kept) then
        redis.call('pexpire', KEYS[2], kept)
        redis.call('pexpire', KEYS[3], kept)
    end
end

-- Removes ids (false: none) from the queue. The last step on the queue: in a moving slot, the server refuses
-- commands on a key that this step has removed.
local function dequeue(ids)
    local gone = {}
    for _, id in ipairs(ids) do
        gone[#gone + 1] = id or nil
    end
    if gone[1] then
        redis.call('zrem', KEYS[2], unpack(gone))
        redis.call('hdel', KEYS[3], unpack(gone))
    end
end

-- The time (us) at which a key with `millis` to live expires: the end of its last millisecond.
local function end_in(millis)
    return (math.floor(now() / 1000) + millis + 1) * 1000
end

-- Remaining lease of the holder in ms (-1: no end); by the writer's own field if the lock lasts longer.
local function holds_for(lock)
    return lock.ends and math.ceil((lock.ends - end_in(0)) / 1000) or redis.call('pttl', KEYS[1])
end

-- Makes the holder's lease last for at least `millis`, see acquire.lua.
local function extend(id, millis, lock)
    local left = holds_for(lock)
    if left ~= -1 then
        lease(id, math.max(tonumber(millis), left), lock)
    end
end

local function again(over)
    must('zrem', 'hdel')
    dequeue(over)
    return AGAIN
end

-- Removes fields from the lock, except `but`. (Never more than a batch: unpack() takes some thousand.)
local function take_out(fields, but)
    local gone = {}
    for _, field in ipairs(fields) do
        gone[#gone + 1] = field ~= but and field or nil
    end
    if gone[1] then
        redis.call('hdel', KEYS[1], unpack(gone))
    end
end

-- Leases the lock to the winner and publishes the grant. HSET comes first: before 7.0 it may be refused, and
-- the winner and the ids in `over` then stay in the queue. (An evicted nonce makes the waiter ask.)
local function grant(winner, over, lock)
    over[#over + 1] = winner.id
    lease(winner.id, winner.millis, lock)
    dequeue(over)
    redis.call(ARGV[1], ARGV[5] .. string.sub(winner.id, 1, 36), ARGV[6] .. string.match(winner.id, ':(%d+)', 37) .. ':' .. winner.nonce)
end

-- Reserves tokens, if any are wanted. Called before the lock is written, because this can fail.
local function reserve(tokens)
    if tokens == '0' then
        return {}
    end
    counted()
    redis.call('incrby', KEYS[#KEYS], tokens)
    local last = redis.call('get', KEYS[#KEYS])
    if SPACED then
        redis.call('incrby', KEYS[#KEYS], '1')
    end
    return { last }
end
