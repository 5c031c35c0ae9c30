-- Makes leases last for some time from now at least.
-- KEYS: the locks.  ARGV: 1 lease in ms, then the owner of each lock, in the order of the keys.
-- Returns 1 for each lock that its owner still has, 0 for each that it has not.
local lease = tonumber(ARGV[1])
local renewed = {}
for i, lock in ipairs(KEYS) do
    if redis.call('hexists', lock, ARGV[i + 1]) == 1 then
        local left = redis.call('pttl', lock)
        if left >= 0 and left < lease then
            redis.call('pexpire', lock, ARGV[1])
        end
        renewed[i] = 1
    else
        renewed[i] = 0
    end
end
return renewed
