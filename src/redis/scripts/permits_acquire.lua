-- Leases permits to the id if no queued waiter comes before the id and the permits suffice, or extends the id's
-- own lease, see acquire.lua. Otherwise gives the id a position.
-- ARGV, from OWN on: lease in ms, id, permits, capacity; and if a position is wanted, its ms, its nonce, and the
-- us for which the id has waited.
-- Returns nil if leased; `mode` of another kind of lock; `AGAIN`; or ms until the client has to ask again (-1:
-- a message will come).
local millis, id, permits, capacity, kept, nonce, waited = unpack(ARGV, OWN)
local lock = found(id)
if lock.other then
    return lock.other
end
local queued = redis.call('exists', KEYS[2]) == 1
lock.permits = lock.own or tonumber(permits)
if lock.own then
    must('pexpire', 'pttl', queued and 'zrem', queued and 'hdel')
    local ends = tonumber(string.match(redis.call('hget', KEYS[1], id), '%d+'))
    lock.used = lock.used - lock.own
    lease(id, math.max(tonumber(millis), math.ceil((ends - end_in(0)) / 1000)), lock)
    if queued then
        dequeue({ id })
    end
    return nil
end
local began, ahead, more = since(id, waited), false, nil
if queued then
    must_write_and_grant()
    ahead, more = serve(lock, id, began)
    if more then
        return more
    end
end
lock.permits = tonumber(permits)
if not ahead and lock.used + lock.permits <= tonumber(capacity) then
    must('pexpire', 'pttl')
    lease(id, millis, lock)
    if queued then
        dequeue({ id })
    end
    return nil
end
if kept then
    must('hset', 'zadd', 'pexpire', 'pttl')
    enqueue(id, kept, began, nonce .. '/' .. permits .. '/' .. capacity)
end
return not ahead and lock.first < math.huge and math.ceil((lock.first - now()) / 1000) - 1 or -1
