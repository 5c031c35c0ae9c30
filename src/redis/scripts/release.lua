-- Frees the lock if the id holds it, and wakes a waiter.
-- KEYS: the lock.  ARGV: 1 id, 2 the lock's channel, 3 the publishing command unless PUBLISH. (The channel is
-- no key: with one of two keys missing, a Cluster refuses the script while the slot moves.)
-- Returns the number of subscribers that the message went to, or -1 if the id does not hold the lock.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return -1
end
-- A reader of a read-write lock has a field as well.
if redis.call('hget', KEYS[1], 'mode') ~= 'lock' then
    return -1
end
-- Publishes first: no client can act before the script ends. After DEL, a user without the right to publish
-- would free the lock, wake no waiter, and get an error.
local heard = redis.call(ARGV[3] or 'publish', ARGV[2], '0')
redis.call('del', KEYS[1])
return heard
