-- The holders of a semaphore's permits.
-- KEYS: the semaphore.
-- Returns an array: an array with each lease, its id, its remaining ms and its permits; and the `mode` of
-- another kind of lock, or nil.
local mode = redis.call('hget', KEYS[1], 'mode')
if mode ~= 'permits' then
    return { {}, mode or redis.call('exists', KEYS[1]) == 1 and 'lock' }
end
local clock, holders = redis.call('time'), {}
local fields = redis.call('hgetall', KEYS[1])
for i = 1, #fields, 2 do
    local ends, permits = string.match(fields[i + 1], '^until:(%d+):(%d+)$')
    local left = ends and math.floor((ends - clock[1] * 1000000 - clock[2]) / 1000)
    if left and left > 0 then
        holders[#holders + 1] = { fields[i], left, tonumber(permits) }
    end
end
return { holders, false }
