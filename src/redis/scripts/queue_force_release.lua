-- Frees the lock, whoever has it, for those who wait.
-- Returns what force_release.lua returns.
local lock = found(true)
if lock.other then
    return lock.other
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
local winner, over, left = first('', math.huge)
must(over[1] and 'zrem', over[1] and 'hdel')
if let_in(lock) then
    dequeue(over)
elseif winner then
    must_pass_on()
    grant(winner, left, lock)
    over[#over + 1] = winner
    dequeue(over)
elseif lock.taken then
    free(over, lock)
else
    dequeue(over)
end
for _, key in ipairs(lock.leases or {}) do
    end_lease(key)
end
return lock.taken and 1 or 0
