-- Leases the lock to the id for `lease` ms if the lock is free, or for at least that long if the id holds the
-- lock. Never shortens a lease: a late call must not cut a longer lease that the client counts on. A lease
-- without an end (-1: PERSIST by hand) has none until its release.
-- KEYS: 1 the lock, 2 if tokens are wanted, their counter.
-- ARGV: 1 lease in ms, 2 id, 3 number of tokens, if any are wanted.
-- Returns nil if leased, or an array with the last token; ms until the client has to ask again if another id
-- holds the lock (-1: no end); or the `mode` of another kind of lock.
local left = redis.call('pttl', KEYS[1])
local ours = left ~= -2 and redis.call('hget', KEYS[1], ARGV[2])
if left ~= -2 then
    local mode = redis.call('hget', KEYS[1], 'mode')
    if mode and mode ~= 'lock' then
        return mode
    end
    if not ours then
        -- Redisson's locks have no mode. Its fair and spin locks look like the plain one, and wake no waiter
        -- of ours.
        return not mode and (left < 0 or left > 1000) and 1000 or left
    end
end
-- A refusal must come before the first write: a lock without PEXPIRE would stay for ever.
local may = redis.acl_check_cmd
if not may then
    -- Before 7.0. On a missing key, PEXPIRE does nothing, or is refused. (Where `acl_check_cmd` exists: a
    -- server out of memory refuses only a script's first write, and this would be one.)
    if not ours then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
else
    local refused = not may('pexpire', KEYS[1], ARGV[1]) and 'pexpire'
        or KEYS[2] and not may('hset', KEYS[1], 'mode', 'lock') and 'hset'
        or KEYS[2] and not may('get', KEYS[2]) and 'get'
    if refused then
        return redis.error_reply("NOPERM the user has no permissions to run the '" .. refused .. "' command")
    end
end
local token
if KEYS[2] then
    -- Before the lock is written, because INCRBY can fail.
    counted()
    redis.call('incrby', KEYS[2], ARGV[3])
    token = { redis.call('get', KEYS[2]) }
end
-- Redisson's read and write locks take a hash without `mode` for a free lock.
redis.call('hset', KEYS[1], 'mode', 'lock', ARGV[2], '1')
if left == -2 or left ~= -1 and left < tonumber(ARGV[1]) then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return token
