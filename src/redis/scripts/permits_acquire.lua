-- Leases permits to the id if no queued waiter comes before the id and the permits suffice, or extends the
-- id's own lease, see acquire.lua. Otherwise gives the id a position.
-- ARGV, from OWN on: lease in ms, id, permits, capacity; and if a position is wanted, its ms, its nonce, and
-- the us for which the id has waited.
-- Returns nil if leased; `mode` of another kind of lock; `AGAIN`; or ms until the earliest lease ends (-1: no
-- lease does).
local millis, id, permits, capacity, kept, nonce, waited = unpack(ARGV, OWN)
local lock = found(id)
if lock.other then
    return lock.other
end
local wanted, queued = tonumber(permits), redis.call('zrange', KEYS[2], '0', '0')[1]
local began, ahead, more = since(id, waited), queued and queued ~= id, nil
-- Waiters ahead are served by releases. Only an attempt that fits, or finds ended leases, looks at all of them.
if not lock.own and ahead and (lock.swept or lock.used + wanted <= tonumber(capacity)) then
    must_serve(kept and 'zadd')
    ahead, more = serve(lock, id, began)
    if more then
        return more
    end
end
if lock.own or not ahead and lock.used + wanted <= tonumber(capacity) then
    must('pexpire', 'pttl')
    local ends = ends_by(now(), millis)
    if lock.own then
        lock.used = lock.used - lock.own
        ends = math.max(ends, tonumber(string.match(redis.call('hget', KEYS[1], id), '%d+')))
    end
    if queued then
        must_serve()
    end
    lock.permits = lock.own or wanted
    lease_until(ends, id, lock)
    if queued then
        dequeue({ id })
        -- Ended leases may leave permits for waiters behind. A repeated call finds its own lease, and goes on.
        more = select(2, serve(lock, '', math.huge))
    end
    return more
end
if kept then
    must('hset', 'zadd', 'pexpire', 'pttl')
    enqueue(id, kept, began, nonce .. '/' .. permits .. '/' .. capacity)
end
return lock.first < math.huge and math.ceil((lock.first - now()) / 1000) - 1 or -1
