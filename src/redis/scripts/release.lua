-- Frees the lock if the id holds it, and calls the client that has waited longest. If the id does not hold
-- the lock, its client waits no longer; if that client was called already and the lock is free, calls the
-- next.
-- KEYS: 1 the lock, 2 see call.lua (absent while a slot moves without waiters).
-- ARGV: 1 id, from 2 on see call.lua. (The channel is no key: with one of two keys missing, a Cluster refuses
-- the script while the slot moves.)
-- Returns the number of subscribers of the lock's channel and of called clients, or -1 if the id does not
-- hold the lock.
local count = redis.call('hget', KEYS[1], ARGV[1])
-- A reader of a read-write lock has a field as well.
if not count or redis.call('hget', KEYS[1], 'mode') ~= 'lock' then
    local waits = KEYS[2] and redis.pcall('zrem', KEYS[2], ARGV[1])
    if waits == 0 and redis.call('exists', KEYS[1]) == 0 then
        call(1)
    end
    return -1
end
-- Publishes first: no client can act before the script ends. After DEL, a user without the right to publish
-- would free the lock, wake no waiter, and get an error.
local heard = redis.call(ARGV[3] or 'publish', ARGV[2], '0')
if KEYS[2] and redis.pcall('exists', KEYS[2]) == 1 then
    heard = heard + call(tonumber(count) or 1)
end
redis.call('del', KEYS[1])
return heard
