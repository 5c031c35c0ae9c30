-- Leases permits to the id if no queued waiter comes before the id and the permits suffice, or extends the
-- id's own lease, see acquire.lua. Otherwise gives the id a position. ARGV, from OWN on: lease in ms, id,
-- permits, capacity; and if a position is wanted, its ms, its nonce, and the us for which the id has waited.
-- Returns nil if leased; `mode` of another kind of lock; `AGAIN`; or ms until the client has to ask again
-- (-1: a message will come).
local millis, id, permits, capacity, kept, nonce, waited = unpack(ARGV, OWN)
local lock = found(id)
if lock.other then
    return lock.other
end
local wanted, first_in_queue = tonumber(permits), redis.call('zrange', KEYS[2], '0', '0')[1]
if lock.own then
    must('pexpire', 'pttl', first_in_queue and 'zrem', first_in_queue and 'hdel')
    local ends = tonumber(string.match(redis.call('hget', KEYS[1], id), '%d+'))
    lock.used, lock.permits = lock.used - lock.own, lock.own
    lease(id, math.max(tonumber(millis), math.ceil((ends - end_in(0)) / 1000)), lock)
    dequeue({ first_in_queue and id or nil })
    return nil
end
local began, ahead, more = since(id, waited), first_in_queue and first_in_queue ~= id, nil
-- Waiters ahead are served by releases. Only an attempt that fits, or finds ended leases, looks at all of
-- them.
if ahead and (lock.swept or lock.used + wanted <= tonumber(capacity)) then
    ahead, more = serve(lock, id, began)
    if more then
        return more
    end
end
if not ahead and lock.used + wanted <= tonumber(capacity) then
    must('pexpire', 'pttl', first_in_queue and 'zrem', first_in_queue and 'hdel')
    lock.permits = wanted
    lease(id, millis, lock)
    dequeue({ first_in_queue and id or nil })
    return nil
end
if kept then
    must('hset', 'zadd', 'pexpire', 'pttl')
    enqueue(id, kept, began, nonce .. '/' .. permits .. '/' .. capacity)
end
return not ahead and lock.first < math.huge and math.ceil((lock.first - now()) / 1000) - 1 or -1
