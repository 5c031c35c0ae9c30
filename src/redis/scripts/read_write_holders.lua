-- Who has the lock.
-- KEYS: the lock.
-- Returns an array: the writer and for how many ms its lease lasts, or nil; and each reader and for how many ms its lease lasts. Or the text of
-- the lock's `mode` if it is another kind of lock.
local lock = found(true)
if lock.other then
    return lock.other
end
table.insert(lock.readers, 1, lock.holder and { lock.holder, writes_for(lock) } or false)
return lock.readers
