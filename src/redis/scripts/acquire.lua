-- Takes the lock if it is free, or once more if the owner has it already.
-- KEYS: 1 the lock.  ARGV: 1 lease in ms, 2 owner.
-- Returns nil when taken, otherwise how many ms the other owner's lease lasts (-1: without end).
local free = redis.call('exists', KEYS[1]) == 0
if free or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
    redis.call('hincrby', KEYS[1], ARGV[2], 1)
    -- An inner hold with a short lease must not cut the outer one short.
    local left = redis.call('pttl', KEYS[1])
    if free or (left >= 0 and left < tonumber(ARGV[1])) then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
    return nil
end
return redis.call('pttl', KEYS[1])
