-- Leases the lock to the id for `lease` ms if the lock is free, or for at least that long if the id holds the
-- lock. Never shortens a lease: a late call must not cut a longer lease that the client counts on. A lease
-- without an end (-1: PERSIST by hand) has none until its release.
-- KEYS: 1 the lock, 2 if the id waits, the waiting clients (see call.lua), last if tokens are wanted, their
-- counter.
-- ARGV: 1 lease in ms, 2 id, 3 number of tokens, 4 if the id waits, for how many us its client has waited, 5
-- if a free lock is left to other waiting clients.
-- Returns nil if leased, or an array with the last token; ms until the client has to ask again if another id
-- holds the lock (-1: no end), or if a free lock is left to others; -1000 minus these ms if no release calls the client; or the `mode` of another
-- kind of lock.
local may = redis.acl_check_cmd

-- Has a release call the client of the id. Returns the ms until the client asks again without a call: a call
-- may be lost, and a called client may stand still. A lock stays free for about as long as a client has
-- waited, and the more clients wait, the less often each asks. Returns false if the server has no memory for
-- the entry.
local enter = ARGV[4] and function(left)
    local clock = redis.call('time')
    local others = redis.call('zcard', KEYS[2])
    -- A release goes on without a call if a right is missing, and an entry without an end would stay for ever.
    for _, command in ipairs(may and { 'pexpire', 'zpopmin', 'zrem' } or {}) do
        if not may(command, KEYS[2], ARGV[2]) then
            error("NOPERM the user has no permissions to run the '" .. command .. "' command")
        end
    end
    if not may then
        redis.call('pexpire', KEYS[2], '60000')
    end
    local since = string.format('%.0f', clock[1] * 1000000 + clock[2] - ARGV[4])
    local entered = redis.pcall('zadd', KEYS[2], since, ARGV[2])
    if type(entered) == 'table' then
        return not string.find(entered.err, 'OOM') and redis.call('zadd', KEYS[2], since, ARGV[2])
    end
    redis.pcall('pexpire', KEYS[2], '60000')
    local each = math.min(math.max(ARGV[4] / 1000, 50), 2000) * (1 + others / 16)
    return math.floor(math.min(left < 0 and 5000 or left, each, 5000))
end
local left = redis.call('pttl', KEYS[1])
local ours = left ~= -2 and redis.call('hget', KEYS[1], ARGV[2])
if left ~= -2 then
    local mode = redis.call('hget', KEYS[1], 'mode')
    if mode and mode ~= 'lock' then
        return mode
    end
    if not ours then
        local again = enter and enter(left)
        -- Redisson's locks have no mode, and their releases call no client. Two clients listen to the lock's
        -- channel in the place of all, and their releases call the others. Redisson's fair and spin locks
        -- look like the plain one, and wake no waiter of ours.
        local is_called = again and (mode or redis.call('zrank', KEYS[2], ARGV[2]) > 1)
        if is_called or mode and not enter then
            return again or left
        end
        return -1000 - (not mode and (left < 0 or left > 1000) and 1000 or left)
    end
elseif ARGV[5] and redis.call('exists', KEYS[2]) == 1 then
    -- The release has called one of the clients that wait.
    return enter(-1) or 1
end
-- A refusal must come before the first write: a lock without PEXPIRE would stay for ever.
local counter = ARGV[3] and ARGV[3] ~= '0' and KEYS[#KEYS]
if not may then
    -- Before 7.0. On a missing key, PEXPIRE does nothing, or is refused. (Where `acl_check_cmd` exists: a
    -- server out of memory refuses only a script's first write, and this would be one.)
    if not ours then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
else
    local refused = not may('pexpire', KEYS[1], ARGV[1]) and 'pexpire'
        or counter and not may('hset', KEYS[1], 'mode', 'lock') and 'hset'
        or counter and not may('get', counter) and 'get'
    if refused then
        return redis.error_reply("NOPERM the user has no permissions to run the '" .. refused .. "' command")
    end
end
local token
if counter then
    -- Before the lock is written, because INCRBY can fail.
    counted()
    redis.call('incrby', counter, ARGV[3])
    token = { redis.call('get', counter) }
end
-- A called client has left the set. A client still in the set was not called: a call was lost, or a holder
-- died, and the clients before this one may have died as well. So the release calls several, as many as the
-- id's field says.
local before = enter and redis.pcall('zrank', KEYS[2], ARGV[2])
local calls = type(before) == 'number' and redis.pcall('zrem', KEYS[2], ARGV[2]) == 1
    and string.format('%.0f', math.min(math.max(before, 8), 32))
-- Redisson's read and write locks take a hash without `mode` for a free lock.
redis.call('hset', KEYS[1], 'mode', 'lock', ARGV[2], calls or ours or '1')
if left == -2 or left ~= -1 and left < tonumber(ARGV[1]) then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return token
