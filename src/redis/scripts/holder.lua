-- Who has the lock.
-- KEYS: the lock.
-- Returns nil if it is free, otherwise how many ms the lease lasts (-1: without end), the fields of the lock, if it is a plain or fair one, and its mode (nil if it has none).
local left = redis.call('pttl', KEYS[1])
if left == -2 then
    return false
end
-- A key that is no hash is held by somebody, too: nothing can be leased there.
local mode = redis.pcall('hget', KEYS[1], 'mode')
if type(mode) == 'table' then
    return string.find(mode.err, 'WRONGTYPE') and { left, {}, false } or mode
end
-- A writer's field, of another kind of lock, would pass for the id of a lease with a label.
if mode and mode ~= 'lock' and mode ~= 'fair' then
    return { left, {}, mode }
end
-- Of more than a page, most are no ids.
local fields, page = {}, redis.call('hscan', KEYS[1], '0', 'count', '10')[2]
for i = 1, #page, 2 do
    fields[#fields + 1] = page[i]
end
return { left, fields, mode }
