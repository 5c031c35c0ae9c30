-- Leases the lock to the id for exactly so long, if it is free or leased to it already.
-- KEYS: 1 the lock, 2 if tokens are wanted, their counter.
-- ARGV: 1 lease in ms, 2 id, 3 how many tokens, 4 message, 5 the publishing command, 6 the lock's channel (no key, see release.lua).
-- Returns nil when leased, or the last of the tokens in an array of one. Otherwise how many ms the other lease lasts (-1: without end).
local ours = redis.call('hexists', KEYS[1], ARGV[2]) == 1
local left = redis.call('pttl', KEYS[1])
if not ours and left ~= -2 then
    return left
end
if ours and (left < 0 or left > tonumber(ARGV[1])) then
    -- Others wait for the lease to end, and it ends earlier from now on. First, for the reason given in release.lua.
    redis.call(ARGV[5], ARGV[6], ARGV[4])
end
local token
if KEYS[2] then
    -- Before the lock is written, because it can fail: then the lock is not taken.
    redis.call('incrby', KEYS[2], ARGV[3])
    token = { redis.call('get', KEYS[2]) }
end
redis.call('hset', KEYS[1], ARGV[2], '1')
redis.call('pexpire', KEYS[1], ARGV[1])
return token
