-- The queue of those who want a lock for themselves alone: stands in front of each script of fair and of read-write locks. What these do
-- differently comes next (fair.lua, read_write.lua), and then the script itself.
-- KEYS: 1 the lock, 2 the ids in its queue by the time since when they wait, 3 the same ids by the time until when their positions are kept (both
-- in us), then the kind's own, and last, if tokens are wanted, their counter. Each kind says in NONCES which
-- of its own keys is a hash: the same ids by the nonce that each waiter has sent when it was enqueued. A
-- grant brings it back: by that the waiter tells the grant from what anybody else may publish.
-- ARGV: 1 the publishing command, 2 that of the other kind of messages if both are wanted, 3 `1` if the server knows of all who listen,
-- 4 the lock's channel, 5 its message, 6 how grant channels begin, 7 how their messages begin, then the kind's own. (Channels are no keys, see
-- release.lua.)
local clock

-- How many waiters, or readers, one call looks at: a server does nothing else meanwhile. What is left is for the
-- next call.
local BATCH = 100
-- What a script returns that has looked at so many and knows no answer yet. It has taken out what it found dead,
-- and is to be called again, with the same words.
local AGAIN = -3

-- What each kind says of itself:
-- OWN: at which of ARGV the script's own begin.  SPARE: whether a lock that becomes free is to be left to strangers.
-- SPACED: whether one token more is used up, which is then for readers.
local OWN, SPARE, NONCES, SPACED
-- found(): what is there. `taken`: it cannot be leased now. `other`: the text of its mode, if it is another kind of lock. `holder`: the id that
-- has it for itself alone. `goes`: fields that are to go when another id gets it. `vacant`: it is taken, by nobody.
-- lasts(lock): in how many ms to ask again at the latest, if it is taken (-1: no end).
-- lease(id, millis, lock): leases it to the id.
-- free(over, lock): frees it, as nobody of ours can be granted it, and tells others. `over`: ids whose positions are over.
-- let_in(lock): its holder leaves, and others come before the queue: if so, it is theirs now, and true.
-- gone(lock, id, began): the id, which had a position since then, leaves the queue.
-- bury(lock): takes out what is dead of a lock that stays with its holder.
local found, lasts, lease, free, let_in, gone, bury

-- The server's time in us. Most scripts find nobody in the queue, and need none.
local function now()
    clock = clock or redis.call('time')
    return clock[1] * 1000000 + clock[2]
end

-- A call of the command that does nothing. (Of HSET and DEL there is none; RENAME is asked for only if the key is there.)
local function harmless(name)
    if name == 'pexpire' then
        -- PTTL has to be allowed as well, as it is asked for between writes, see `enqueue`.
        return { name, KEYS[2], math.max(redis.call('pttl', KEYS[2]), 1) }
    elseif name == 'zrem' then
        return { name, KEYS[2], '' }
    elseif name == 'zadd' then
        return { name, KEYS[2], 'xx', '0', '' }
    elseif name == 'hdel' then
        return { name, KEYS[1], '' }
    elseif name == 'hset' then
        return { name, KEYS[1], 'mode', '' }
    elseif name == 'del' then
        return { name, KEYS[1] }
    elseif name == 'get' then
        return { name, KEYS[#KEYS] }
    elseif name == 'rename' then
        return { name, KEYS[4], KEYS[4] }
    elseif name == 'set' then
        return { name, KEYS[7], '1', 'xx', 'keepttl' }
    end
    return { name, ARGV[6], '' }
end

-- What the server refuses, it must refuse before the first write: what is written stays, and a grant that is told is believed. (false: no
-- command.)
local function must(...)
    local may = redis.acl_check_cmd
    for i = 1, select('#', ...) do
        local name = select(i, ...)
        local words = name and harmless(name)
        if words and may then
            if not may(unpack(words)) then
                -- In the server's words.
                error({ err = "NOPERM the user has no permissions to run the '" .. name .. "' command" })
            end
        elseif words and name ~= 'hset' and name ~= 'del' then
            -- Before 7.0 it cannot be asked, so the calls are made. HSET is the first write where it matters, and what DEL leaves ends by itself.
            local reply = redis.pcall(unpack(words))
            if type(reply) == 'table' and reply.err then
                error(reply.err .. " (asked to run the '" .. name .. "' command)")
            end
        end
    end
end

-- `must` for whoever passes the lock on. A write that needs no memory comes first: what follows is not refused for want of it.
local function must_pass_on(...)
    must('zrem', 'zadd', 'hset', 'hdel', 'pexpire', ARGV[1], ARGV[2] ~= '' and ARGV[2], ...)
    redis.call('zrem', KEYS[2], '')
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

-- Since when the id waits: as its position says, if that lasts, or its client, whichever is earlier. (The client is earlier if the clock was set
-- back: newcomers would overtake it until the clock is again where it was.)
local function since(id, waited)
    local began, kept = redis.call('zscore', KEYS[2], id), redis.call('zscore', KEYS[3], id)
    local lasts = began and kept and tonumber(kept) > now()
    return math.min(lasts and tonumber(began) or math.huge, waited ~= '' and now() - waited or math.huge)
end

-- The first in the queue whose client can be told (if the server knows of all who listen), unless the id, which has
-- waited since `began`, comes first; the positions before it that are over; for how many ms the first one's lasts; and
-- `AGAIN` if none of a whole batch can be told. Then the positions of that batch are over, too, for otherwise each call
-- would have to pass them by. Such a client says with its next question for how long it has waited, and has its place
-- back.
local function first(id, began)
    local over, deaf, place = {}, {}, 0
    -- Most often it is the very first.
    local count = 1
    while place < BATCH do
        local page = redis.call('zrange', KEYS[2], place, place + count - 1, 'withscores')
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
        local winner, its
        for i, waiter in ipairs(waiters) do
            its = (not told or told[2 * i] > 0) and (redis.call('zscore', KEYS[3], waiter) or 0) - now()
            if not its then
                deaf[#deaf + 1] = waiter
            elseif its > 0 then
                winner = waiter
                break
            else
                over[#over + 1] = waiter
            end
        end
        if winner or last then
            for _, waiter in ipairs(deaf) do
                local until_then = tonumber(redis.call('zscore', KEYS[3], waiter) or 0)
                over[#over + 1] = until_then <= now() and waiter or nil
            end
            return winner, over, winner and math.ceil(its / 1000)
        end
        place = place + count
        count = math.min(9 * count, BATCH - place)
    end
    for _, waiter in ipairs(deaf) do
        over[#over + 1] = waiter
    end
    return nil, over, nil, AGAIN
end

-- Gives the id a position, or keeps the one that it has for so many ms. (A server may have evicted any of the
-- keys, which has no end then.) HSET comes first, for the reason given in `must`.
local function enqueue(id, kept, began, nonce)
    redis.call('hset', NONCES, id, nonce)
    redis.call('zadd', KEYS[2], began, id)
    redis.call('zadd', KEYS[3], now() + kept * 1000, id)
    local ends = math.min(redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3]))
    if math.min(ends, redis.call('pttl', NONCES)) < tonumber(kept) then
        redis.call('pexpire', KEYS[2], kept)
        redis.call('pexpire', KEYS[3], kept)
        redis.call('pexpire', NONCES, kept)
    end
end

-- Takes ids (false: none) out of the queue that are in it. Nothing looks at the queue after that: a key that this removed is missing, and in a
-- slot that moves the server refuses to look for it.
local function dequeue(ids)
    local gone = {}
    for _, id in ipairs(ids) do
        gone[#gone + 1] = id or nil
    end
    if gone[1] then
        redis.call('zrem', KEYS[2], unpack(gone))
        redis.call('zrem', KEYS[3], unpack(gone))
        redis.call('hdel', NONCES, unpack(gone))
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

-- Leases the lock to an id that is not asking, and tells it. It is out of the queue with the next `dequeue`.
-- (Without its nonce, which a server may have evicted, the message only makes the waiter ask.)
local function grant(id, millis, lock)
    local nonce = redis.call('hget', NONCES, id) or ''
    lease(id, millis, lock)
    tell(ARGV[6] .. string.sub(id, 1, 36), ARGV[7] .. string.match(id, ':(%d+)', 37) .. ':' .. nonce)
end

-- Reserves tokens, if any are wanted. Before the lock is written, because it can fail.
local function reserve(tokens)
    if tokens == '0' then
        return {}
    end
    redis.call('incrby', KEYS[#KEYS], tokens)
    local last = redis.call('get', KEYS[#KEYS])
    if SPACED then
        redis.call('incrby', KEYS[#KEYS], '1')
    end
    return { last }
end
