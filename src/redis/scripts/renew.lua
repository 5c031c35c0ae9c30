-- Makes leases last for some time from now at least. One without an end (-1: taken away by hand) has none until it is released.
-- KEYS: the locks; if each has 2, then each lock, and the lease of its reader.
-- ARGV: 1 lease in ms, 2 how many keys each has, then the field of each lock's lease, in the order of the keys.
-- Returns 1 for each lock that the field is still in, 0 for each that it is not in.
local lease, each = tonumber(ARGV[1]), tonumber(ARGV[2])
local renewed = {}
for i = 1, #KEYS, each do
    local lock, field = KEYS[i], ARGV[(i - 1) / each + 3]
    -- A key that is no hash any more is nobody's lock. It must not take the renewal of all the others along.
    local held = redis.pcall('hget', lock, field)
    if type(held) == 'table' then
        if not string.find(held.err, 'WRONGTYPE') then
            return held
        end
        held = false
    end
    -- A reader is renewed as one. Without a lease of its own it is dead, and so is a writer that is over: see read_write.lua.
    local own = each == 2 and held and redis.call('pttl', KEYS[i + 1])
    local mode = each == 1 and held and redis.call('hget', lock, 'mode')
    if mode == 'read' or mode == 'write' and string.sub(field, -6) ~= ':write' then
        held = false
    end
    local ends = held and string.match(held, '^until:(%d+)$')
    if own == -2 then
        held = false
    elseif own and own ~= -1 and own < lease then
        redis.call('pexpire', KEYS[i + 1], ARGV[1])
    elseif ends then
        local clock = redis.call('time')
        local now = clock[1] * 1000000 + clock[2]
        -- As long as a key would last, see `end_in`.
        local later = (math.floor(now / 1000) + lease + 1) * 1000
        if tonumber(ends) <= now then
            held = false
        elseif tonumber(ends) < later then
            redis.call('hset', lock, field, string.format('until:%.0f', later))
        end
    end
    local left = held and redis.call('pttl', lock)
    if held and left ~= -1 and left < lease then
        redis.call('pexpire', lock, ARGV[1])
    end
    renewed[#renewed + 1] = held and 1 or 0
end
return renewed
