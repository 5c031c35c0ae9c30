-- Who has the lock.
-- KEYS: the lock.
-- Returns nil if it is free, otherwise how many ms the lease lasts (-1: without end), and the fields of the lock, if it is one.
local left = redis.call('pttl', KEYS[1])
if left == -2 then
    return false
end
-- A key that is no hash is held by somebody, too: nothing can be leased there.
local fields = redis.pcall('hkeys', KEYS[1])
if fields.err then
    if not string.find(fields.err, 'WRONGTYPE', 1, true) then
        return fields
    end
    fields = {}
end
return { left, fields }
