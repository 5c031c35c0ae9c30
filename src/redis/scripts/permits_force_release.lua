-- Ends all leases, and grants the free permits to the first waiters.
-- Returns 1 if permits were in use, 0 if not, -4 if they were and permits_release.lua has more waiters to serve;
-- or `mode` of another kind of lock.
local lock = found('')
if lock.other then
    return lock.other
end
must_serve('del')
local held = lock.used > 0
redis.call('del', KEYS[1])
lock.used, lock.first = 0, math.huge
local more = select(2, serve(lock, '', math.huge))
return held and (more and -4 or 1) or 0
