-- Leases the lock to the id for so long, if it is free; for so long at least, if it is leased to it already. A lease never becomes shorter: this may
-- come late, when its client counts on a longer one. One without an end (-1: taken away by hand) has none until it is released.
-- KEYS: 1 the lock, 2 if tokens are wanted, their counter.
-- ARGV: 1 lease in ms, 2 id, 3 how many tokens, if they are wanted.
-- Returns nil when leased, or the last of the tokens in an array of one. Otherwise, if another has it, in how many ms to ask again at the
-- latest (-1: the lease has no end), or the text of its `mode` if it is another kind of lock.
local left = redis.call('pttl', KEYS[1])
local ours = left ~= -2 and redis.call('hget', KEYS[1], ARGV[2])
if left ~= -2 then
    local mode = redis.call('hget', KEYS[1], 'mode')
    if mode and mode ~= 'lock' then
        return mode
    end
    if not ours then
        -- Without a mode it is a lock of Redisson's. Its fair and spin locks tell nobody of ours that they are free, and look the same as the
        -- others.
        return not mode and (left < 0 or left > 1000) and 1000 or left
    end
end
-- What the server refuses, it must refuse before the first write: what is written stays, and without PEXPIRE for ever.
local may = redis.acl_check_cmd
if not may then
    -- Before 7.0 it cannot be asked. On a key that is not there PEXPIRE does nothing but fail. (It is a write; a server without memory, which
    -- stops a script at its first write only, would let the next one pass. So it is not what is done where it can be asked.)
    if not ours then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
else
    local refused = not may('pexpire', KEYS[1], ARGV[1]) and 'pexpire'
        or KEYS[2] and not may('hset', KEYS[1], 'mode', 'lock') and 'hset'
        or KEYS[2] and not may('get', KEYS[2]) and 'get'
    if refused then
        -- In the server's words.
        return redis.error_reply("NOPERM the user has no permissions to run the '" .. refused .. "' command")
    end
end
local token
if KEYS[2] then
    -- Before the lock is written, because it can fail: then the lock is not taken.
    counted()
    redis.call('incrby', KEYS[2], ARGV[3])
    token = { redis.call('get', KEYS[2]) }
end
-- The mode keeps Redisson's read and write locks out, which take a hash without it for free. It is no owner.
redis.call('hset', KEYS[1], 'mode', 'lock', ARGV[2], '1')
if left == -2 or left ~= -1 and left < tonumber(ARGV[1]) then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return token
