-- Leaves the owner so many holds; with none the lock becomes free, and a waiter is told.
-- KEYS: 1 the lock, 2 its channel.  ARGV: 1 owner, 2 how many holds are left, 3 message, 4 the publishing command.
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
redis.call(ARGV[4], KEYS[2], ARGV[3])
redis.call('del', KEYS[1])
return 1
