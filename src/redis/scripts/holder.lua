-- The holder of the lock.
-- KEYS: the lock.
-- Returns nil if the lock is free; else the lease's remaining ms (-1: no end), the fields of a plain or fair
-- lock, and the mode or nil.
local left = redis.call('pttl', KEYS[1])
if left == -2 then
    return false
end
-- A key that is no hash counts as held: it cannot be leased.
local mode = redis.pcall('hget', KEYS[1], 'mode')
if type(mode) == 'table' then
    return string.find(mode.err, 'WRONGTYPE') and { left, {}, false } or mode
end
-- A writer's field would pass for the id of a lease with a label.
if mode and mode ~= 'lock' and mode ~= 'fair' then
    return { left, {}, mode }
end
-- One page: of more fields, most are no ids.
local fields, page = {}, redis.call('hscan', KEYS[1], '0', 'count', '10')[2]
for i = 1, #page, 2 do
    fields[#fields + 1] = page[i]
end
return { left, fields, mode }
