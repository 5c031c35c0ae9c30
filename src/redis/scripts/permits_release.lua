-- Ends the id's lease, or its position, and grants the free permits to the first waiters.
-- ARGV, from OWN on: id.
-- Returns 1 if the id had a lease, 0 if not; `AGAIN` if the call has to be repeated, -4 if the id had a lease
-- and the call has to be repeated.
local id = ARGV[OWN]
local lock = found(id)
local queued = redis.call('exists', KEYS[2]) == 1
if lock.other then
    must(queued and 'zrem', queued and 'hdel')
elseif queued then
    must_serve(lock.own and 'del')
elseif lock.own then
    must('hdel', 'hset', 'del')
end
if lock.own then
    redis.call('hdel', KEYS[1], id)
    lock.used, lock.changed = lock.used - lock.own, true
elseif queued then
    dequeue({ id })
end
local more = queued and not lock.other and select(2, serve(lock, '', math.huge))
if lock.changed and lock.used == 0 then
    redis.call('del', KEYS[1])
elseif lock.changed then
    redis.call('hset', KEYS[1], 'used', string.format('%.0f', lock.used))
end
if more then
    return lock.own and -4 or more
end
return lock.own and 1 or 0
