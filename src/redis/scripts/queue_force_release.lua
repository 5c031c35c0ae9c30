-- Frees the lock, whichever id holds it, for the waiters.
-- Returns what force_release.lua returns; or `AGAIN`.
local lock = found(true)
if lock.other then
    return lock.other
elseif lock.again then
    return bury(lock)
end
if lock.vacant then
    return 0
end
local readers = lock.readers or {}
must(readers[1] and 'pexpire')
for _, reader in ipairs(readers) do
    lock.goes[#lock.goes + 1] = reader[1]
end
lock.reads = nil
if lock.more then
    -- Too many fields to remove one by one: delete the lock, and the first waiter gets it when a waiter asks.
    free({}, lock)
    return 1
end
local winner, over, more = first('', math.huge)
if more then
    return again(over)
end
must(over[1] and 'zrem', over[1] and 'hdel')
if let_in(lock) then
    dequeue(over)
elseif winner then
    must_grant()
    grant(winner, over, lock)
elseif lock.taken then
    free(over, lock)
else
    dequeue(over)
end
for _, key in ipairs(lock.leases or {}) do
    end_lease(key)
end
return lock.taken and 1 or 0
