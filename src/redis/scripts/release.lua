-- Gives one of the owner's holds back; with the last one the lock becomes free, and a waiter is told.
-- KEYS: 1 the lock, 2 its channel.  ARGV: 1 owner, 2 message, 3 the publishing command.
-- Returns how many holds are left, or nil if the owner had none.
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return nil
end
local holds = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if holds > 0 then
    return holds
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[2])
return 0
