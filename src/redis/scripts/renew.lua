-- Makes leases last for at least `lease` ms from now. Leaves a lease without an end (-1: PERSIST by hand).
-- KEYS: the locks; with 2 keys each, a lock and its reader's lease.
-- ARGV: 1 lease in ms, 2 keys of each lock, then the field of each lock's lease, in the order of the keys.
-- Returns for each lock 1 if the field is still there, else 0.
local lease, each = tonumber(ARGV[1]), tonumber(ARGV[2])
local renewed = {}
for i = 1, #KEYS, each do
    local lock, field = KEYS[i], ARGV[(i - 1) / each + 3]
    -- A key that is no hash is not held. It must not fail the other renewals.
    local held = redis.pcall('hget', lock, field)
    if type(held) == 'table' then
        if not string.find(held.err, 'WRONGTYPE') then
            return held
        end
        held = false
    end
    -- A reader's field is renewed as a reader's only. A reader without its own lease is dead, and a writer
    -- whose end has passed is over: see read_write.lua.
    local own = each == 2 and held and redis.call('pttl', KEYS[i + 1])
    local mode = each == 1 and held and redis.call('hget', lock, 'mode')
    if mode == 'read' or mode == 'write' and string.sub(field, -6) ~= ':write' then
        held = false
    end
    local ends, permits = string.match(held or '', '^until:(%d+)(:?%d*)$')
    local is_semaphore = permits and permits ~= ''
    if own == -2 then
        held = false
    elseif own and own ~= -1 and own < lease then
        redis.call('pexpire', KEYS[i + 1], ARGV[1])
    elseif ends then
        local clock = redis.call('time')
        local now = clock[1] * 1000000 + clock[2]
        -- See `end_in` in queue.lua.
        local later = is_semaphore and ends_by(now, lease) or (math.floor(now / 1000) + lease + 1) * 1000
        if tonumber(ends) <= now then
            held = false
        elseif tonumber(ends) < later then
            redis.call('hset', lock, field, string.format('until:%.0f%s', later, permits))
        end
    end
    local left, lasts = held and redis.call('pttl', lock), is_semaphore and lease + 100 or lease
    if held and left ~= -1 and left < lasts then
        redis.call('pexpire', lock, string.format('%.0f', lasts))
    end
    renewed[#renewed + 1] = held and 1 or 0
end
return renewed
