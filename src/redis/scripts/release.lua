-- Gives one of the owner's holds back; with the last one the lock becomes free, and a waiter is told.
-- KEYS: 1 the lock, 2 its channel.  ARGV: 1 owner, 2 message, 3 the publishing command.
-- Returns how many holds are left, or nil if the owner had none.
local holds = redis.call('hget', KEYS[1], ARGV[1])
if not holds then
    return nil
end
if tonumber(holds) > 1 then
    return redis.call('hincrby', KEYS[1], ARGV[1], -1)
end
-- Nobody can act on the message before this script has ended. Were it published after the deletion, a user who may not
-- publish would free the lock, wake nobody, and be told that it failed.
redis.call(ARGV[3], KEYS[2], ARGV[2])
redis.call('del', KEYS[1])
return 0
