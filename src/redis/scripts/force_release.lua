-- Frees the lock, whichever id holds it, and wakes a waiter.
-- KEYS: the lock.  ARGV: 1 message, 2 the publishing command, 3 the lock's channel (no key, see release.lua).
-- Returns 1 if the lock was held, 0 if free, or the `mode` of another kind of lock, which stays as it is.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode and mode ~= 'lock' then
    return mode
end
-- Publishes first, see release.lua.
redis.call(ARGV[2], ARGV[3], ARGV[1])
redis.call('del', KEYS[1])
return 1
