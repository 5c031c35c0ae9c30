-- Frees the lock if the id has it, and tells a waiter.
-- KEYS: the lock.  ARGV: 1 id, 2 the lock's channel, 3 the publishing command, if that is not PUBLISH. (The channel is no key: as one of two, of
-- which the other is missing, it would keep a Cluster from running this while the slot moves.)
-- Returns how many subscribers the message went to, or -1 if the id does not have the lock.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return -1
end
-- A reader has a field as well, and others may read or write beside it.
if redis.call('hget', KEYS[1], 'mode') ~= 'lock' then
    return -1
end
-- Nobody can act on the message before this script has ended. Were it published after the deletion, a user who may not
-- publish would free the lock, wake nobody, and be told that it failed.
local heard = redis.call(ARGV[3] or 'publish', ARGV[2], '0')
redis.call('del', KEYS[1])
return heard
