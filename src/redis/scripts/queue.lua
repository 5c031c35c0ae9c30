-- The queue of those who want a lock for themselves alone: stands in front of each script of fair and of read-write locks, behind what
-- these are (fair_kind.lua, read_write_kind.lua). What they do differently comes next (fair.lua, read_write.lua), and then the script itself.
-- KEYS: 1 the lock, 2 the ids in its queue by the time (us) since when they wait, 3 a hash, their positions: the same ids by the time (us) until
-- when each is kept, in 16 digits, `:`, and the nonce that the waiter has sent when it was enqueued. A grant brings that back: by it the waiter tells
-- the grant from what anybody else may publish. Then the kind's own, and last, if tokens are wanted, their counter.
-- ARGV: 1 the publishing command, 2 that of the other kind of messages if both are wanted, 3 `1` if the server knows of all who listen,
-- 4 the lock's channel, 5 its message, 6 how grant channels begin, 7 how their messages begin, then the kind's own. What is not wanted at the end is
-- left out. (Channels are no keys, see release.lua.)
-- A number that goes to a command is written out first, as the server takes longer for that than for most commands.
local clock

-- How many waiters, or readers, one call looks at: a server does nothing else meanwhile. What is left is for the
-- next call.
local BATCH = 100
-- What a script returns that has looked at so many and knows no answer yet. It has taken out what it found dead,
-- and is to be called again, with the same words.
local AGAIN = -3

-- What each kind does in its way:
-- found(): what is there. `taken`: it cannot be leased now. `other`: the text of its mode, if it is another kind of lock. `holder`: the id that
-- has it for itself alone. `goes`: fields that are to go when another id gets it. `vacant`: it is taken, by nobody.
-- lasts(lock): in how many ms to ask again at the latest, if it is taken (-1: no end).
-- lease(id, millis, lock): leases it to the id.
-- free(over, lock): frees it, as nobody of ours can be granted it, and tells others. `over`: ids whose positions are over.
-- let_in(lock): its holder leaves, and others come before the queue: if so, it is theirs now, and true.
-- gone(lock, id, began): the id, which had a position since then, is about to leave the queue, and may.
-- bury(lock): takes out what is dead of a lock that stays with its holder.
local found, lasts, lease, free, let_in, gone, bury

-- The server's time in us. Most scripts find nobody in the queue, and need none.
local function now()
    clock = clock or redis.call('time')
    return clock[1] * 1000000 + clock[2]
end

-- The words of a call of the command that does nothing. (Of HSET and DEL there is none; RENAME is asked for only if the key is there.)
local function harmless(name)
    if name == 'hset' then
        return KEYS[1], 'mode', ''
    elseif name == 'hdel' then
        return KEYS[1], ''
    elseif name == 'zrem' then
        return KEYS[2], ''
    elseif name == 'pexpire' then
        -- Where it is done, it must not cut the queue short, which may have lost its end (-1). No client keeps a position for so long.
        return KEYS[2], redis.acl_check_cmd and '1' or math.max(redis.call('pttl', KEYS[2]), 60000)
    elseif name == 'zadd' then
        return KEYS[2], 'xx', '0', ''
    elseif name == 'pttl' then
        return KEYS[2]
    elseif name == 'del' then
        return KEYS[1]
    elseif name == 'get' then
        return KEYS[#KEYS]
    elseif name == 'rename' then
        return KEYS[4], KEYS[4]
    elseif name == 'set' then
        return KEYS[6], '1', 'xx', 'keepttl'
    end
    return ARGV[6], ''
end

-- What the server refuses, it must refuse before the first write: what is written stays, and a grant that is told is believed. (false: no
-- command.)
local function must(...)
    local may = redis.acl_check_cmd
    for i = 1, select('#', ...) do
        local name = select(i, ...)
        if name and may then
            if not may(name, harmless(name)) then
                -- In the server's words.
                error({ err = "NOPERM the user has no permissions to run the '" .. name .. "' command" })
            end
        elseif name and name ~= 'hset' and name ~= 'del' then
            -- Before 7.0 it cannot be asked, so the calls are made. HSET is the first write where it matters, and what DEL leaves ends by itself.
            local reply = redis.pcall(name, harmless(name))
            if type(reply) == 'table' and reply.err then
                error(reply.err .. " (asked to run the '" .. name .. "' command)")
            end
        end
    end
end

-- `must` before a grant of the lock. The first write has to be a removal, which needs no memory: what follows is not refused for want of it. So an
-- id is removed that is not there. It is its own question: without the right to it, it fails before anything is written.
local function must_grant(...)
    must('hset', 'hdel', 'pexpire', ARGV[1], ARGV[2] ~= '' and ARGV[2], ...)
    redis.call('zrem', KEYS[2], '')
end

-- The same, and a waiter is enqueued before.
local function must_write_and_grant(...)
    must_grant('zadd', 'pttl', ...)
end

-- PEXPIRE 0 deletes; `must` has checked the right to it.
local function end_lease(key)
    redis.call('pexpire', key, '0')
end

local function tell(channel, message)
    redis.call(ARGV[1], channel, message)
    if ARGV[2] ~= '' then
        redis.call(ARGV[2], channel, message)
    end
end

-- For how many us the id's position is kept yet, and the nonce that it brought.
local function position(id)
    local kept = redis.call('hget', KEYS[3], id) or ''
    return (tonumber(string.sub(kept, 1, 16)) or 0) - now(), string.sub(kept, 18)
end

-- Since when the id waits: as its position says, if that lasts, or its client, whichever is earlier. (The client is earlier if the clock was set
-- back: newcomers would overtake it until the clock is again where it was.)
local function since(id, waited)
    local began = redis.call('zscore', KEYS[2], id)
    local lasts = began and position(id) > 0
    return math.min(lasts and tonumber(began) or math.huge, waited and now() - waited or math.huge)
end

-- The first in the queue whose client can be told (if the server knows of all who listen), unless the id, which has
-- waited since `began`, comes first: its `id`, for how many `millis` its position lasts, and its `nonce`. Besides the positions before it that are
-- over; and `AGAIN` if none of a whole batch can be told. Then the positions of that batch are over, too, for otherwise each call
-- would have to pass them by. Such a client says with its next question for how long it has waited, and has its place
-- back.
local function first(id, began)
    local over, deaf, place = {}, {}, 0
    -- Most often it is the very first.
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
                channels[#channels + 1] = ARGV[6] .. string.sub(waiter, 1, 36)
            end
        end
        -- Asked for before anything is published: a message that is heard though the server knows of no subscriber
        -- would be a grant that was never made.
        local told
        if waiters[1] and ARGV[3] == '1' and ARGV[1] == 'spublish' then
            told = redis.call('pubsub', 'shardnumsub', unpack(channels))
        elseif waiters[1] and ARGV[3] == '1' then
            told = redis.call('pubsub', 'numsub', unpack(channels))
        end
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

-- Gives the id a position, or keeps the one that it has for so many ms. (A server may have evicted any of the
-- keys, which has no end then.) HSET comes first, for the reason given in `must`.
local function enqueue(id, kept, began, nonce)
    redis.call('hset', KEYS[3], id, string.format('%016.0f:%s', now() + kept * 1000, nonce))
    redis.call('zadd', KEYS[2], string.format('%.0f', began), id)
    if math.min(redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3])) < tonumber(kept) then
        redis.call('pexpire', KEYS[2], kept)
        redis.call('pexpire', KEYS[3], kept)
    end
end

-- Takes ids (false: none) out of the queue. Nothing looks at the queue after that: a key that this removed is missing, and in a
-- slot that moves the server refuses to look for it.
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

-- Until when a key lasts that has so many ms (us): through the whole of its last one.
local function end_in(millis)
    return (math.floor(now() / 1000) + millis + 1) * 1000
end

-- For how many ms the holder's lease lasts, as PTTL says it (-1: no end). `ends`: until when it says so itself (us), where the lock may last for
-- longer.
local function holds_for(lock)
    return lock.ends and math.ceil((lock.ends - end_in(0)) / 1000) or redis.call('pttl', KEYS[1])
end

-- Makes the holder's lease last for so long at least, for the reason given in acquire.lua.
local function extend(id, millis, lock)
    local left = holds_for(lock)
    if left ~= -1 then
        lease(id, math.max(tonumber(millis), left), lock)
    end
end

-- The end of a call whose batch was not enough: see `AGAIN`.
local function again(over)
    must('zrem', 'hdel')
    dequeue(over)
    return AGAIN
end

-- Takes fields out of the lock, but this one. (Not more than a batch: unpack() takes some thousand.)
local function take_out(fields, but)
    local gone = {}
    for _, field in ipairs(fields) do
        gone[#gone + 1] = field ~= but and field or nil
    end
    if gone[1] then
        redis.call('hdel', KEYS[1], unpack(gone))
    end
end

-- Leases the lock to the first in the queue, and tells it. It leaves the queue with those that are `over`, but not before HSET: that may still be
-- refused before 7.0, and then it waits on. (Without its nonce, which a server may have evicted, the message only makes the waiter ask.)
local function grant(winner, over, lock)
    over[#over + 1] = winner.id
    lease(winner.id, winner.millis, lock)
    dequeue(over)
    tell(ARGV[6] .. string.sub(winner.id, 1, 36), ARGV[7] .. string.match(winner.id, ':(%d+)', 37) .. ':' .. winner.nonce)
end

-- Reserves tokens, if any are wanted. Before the lock is written, because it can fail.
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
