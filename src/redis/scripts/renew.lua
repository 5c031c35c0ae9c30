-- Makes leases last for some time from now at least.
-- KEYS: the locks.  ARGV: 1 lease in ms, then the id of each lock's lease, in the order of the keys.
-- Returns 1 for each lock that the id has still, 0 for each that it has not.
local lease = tonumber(ARGV[1])
local renewed = {}
for i, lock in ipairs(KEYS) do
    -- A key that is no hash any more is nobody's lock. It must not take the renewal of all the others along.
    local held = redis.pcall('hexists', lock, ARGV[i + 1])
    if type(held) == 'table' and not string.find(held.err, 'WRONGTYPE', 1, true) then
        return held
    end
    if held == 1 then
        -- Also if it has no end (-1): somebody has taken that away.
        if redis.call('pttl', lock) < lease then
            redis.call('pexpire', lock, ARGV[1])
        end
        renewed[i] = 1
    else
        renewed[i] = 0
    end
end
return renewed
