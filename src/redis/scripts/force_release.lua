-- Frees the lock, whichever id holds it, and calls the client that has waited longest.
-- KEYS: 1 the lock, 2 see call.lua.  ARGV: 1 '', from 2 on see call.lua.
-- Returns 1 if the lock was held, 0 if free, or the `mode` of another kind of lock, which stays as it is.
if redis.call('exists', KEYS[1]) == 0 then
    return 0
end
local mode = redis.call('hget', KEYS[1], 'mode')
if mode and mode ~= 'lock' then
    return mode
end
-- Publishes first, see release.lua.
redis.call(ARGV[3] or 'publish', ARGV[2], '0')
if KEYS[2] then
    call(1)
end
redis.call('del', KEYS[1])
return 1
