-- Leaves the owner so many holds; with none the lock becomes free, and a waiter is told.
-- KEYS: the lock.  ARGV: 1 owner, 2 how many holds are left, 3 message, 4 the publishing command, 5 the lock's channel. (That is no
-- key: as one of two, of which the other is missing, it would keep a Cluster from running this while the slot moves.)
-- Returns 1, or 0 if the owner had none.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return 0
end
if ARGV[2] ~= '0' then
    redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
    return 1
end
-- Nobody can act on the message before this script has ended. Were it published after the deletion, a user who may not
-- publish would free the lock, wake nobody, and be told that it failed.
redis.call(ARGV[4], ARGV[5], ARGV[3])
redis.call('del', KEYS[1])
return 1
