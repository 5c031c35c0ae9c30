-- Ends all leases, and grants the free permits to the first waiters.
-- Returns 1 if permits were in use, 0 if not, or `mode` of another kind of lock.
local lock = found('')
if lock.other then
    return lock.other
end
must_grant('del', 'pttl')
local held = lock.used > 0
redis.call('del', KEYS[1])
lock.used, lock.first = 0, math.huge
-- Further waiters are served by their own questions.
serve(lock, '', math.huge)
return held and 1 or 0
