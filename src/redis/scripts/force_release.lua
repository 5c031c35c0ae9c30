-- Frees the lock, whoever has it, and tells a waiter.
-- KEYS: the lock.  ARGV: 1 message, 2 the publishing command, 3 the lock's channel (no key, see release.lua).
-- Returns 1 if somebody had it, otherwise 0.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
-- First, for the reason given in release.lua.
redis.call(ARGV[2], ARGV[3], ARGV[1])
redis.call('del', KEYS[1])
return 1
