-- Frees the lock, whoever has it, and tells a waiter.
-- KEYS: 1 the lock, 2 its channel.  ARGV: 1 message, 2 the publishing command.
-- Returns 1 if somebody had it, otherwise 0.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
-- First, for the reason given in release.lua.
redis.call(ARGV[2], KEYS[2], ARGV[1])
redis.call('del', KEYS[1])
return 1
