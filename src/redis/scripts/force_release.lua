-- Frees the lock, whoever has it, and tells a waiter.
-- KEYS: the lock.  ARGV: 1 message, 2 the publishing command, 3 the lock's channel (no key, see release.lua).
-- Returns 1 if somebody had it, 0 if nobody had, or the text of its `mode` if it is another kind of lock, which is left alone.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode and mode ~= 'lock' then
    return mode
end
-- First, for the reason given in release.lua.
redis.call(ARGV[2], ARGV[3], ARGV[1])
redis.call('del', KEYS[1])
return 1
