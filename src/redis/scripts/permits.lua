-- A semaphore: a hash of leases. Fields beside `mode`: `used`, the permits in use; `first`, a time (us)
-- before which no lease ends; and each lease's id by `until:`, the time (us) at which the lease ends, `:`,
-- its permits. A position's nonce has the waiter's permits and capacity behind it.

-- Limit of grants by one call: the server serves no other command meanwhile.
local GRANTS = 16

-- The semaphore's state: `used`, `first`, and the id's `own` permits. Ended leases are taken out.
function found(id)
    local mode, used, first, own = unpack(redis.call('hmget', KEYS[1], 'mode', 'used', 'first', id))
    if mode ~= MODE then
        local other = mode or redis.call('exists', KEYS[1]) == 1 and 'lock'
        return { used = 0, first = math.huge, other = other }
    end
    local lock = { used = tonumber(used), first = tonumber(first) }
    if not lock.used or not lock.first or lock.first <= now() then
        local fields, ended = redis.call('hgetall', KEYS[1]), {}
        lock.used, lock.first = 0, math.huge
        for i = 1, #fields, 2 do
            local ends, permits = string.match(fields[i + 1], '^until:(%d+):(%d+)$')
            if ends and tonumber(ends) <= now() then
                ended[#ended + 1] = fields[i]
                own = fields[i] ~= id and own
            elseif ends then
                lock.used, lock.first = lock.used + permits, math.min(lock.first, tonumber(ends))
            end
        end
        lock.swept = true
        must('hdel', 'hset', 'del')
        for i = 1, #ended, BATCH do
            redis.call('hdel', KEYS[1], unpack(ended, i, math.min(i + BATCH - 1, #ended)))
        end
        if lock.used == 0 then
            redis.call('del', KEYS[1])
        else
            -- A server without memory may refuse HSET, if no lease has ended. The next call looks again.
            redis.pcall('hset', KEYS[1], 'used', string.format('%.0f', lock.used), 'first', string.format('%.0f', lock.first))
        end
    end
    lock.own = own and tonumber(string.match(own, ':(%d+)$'))
    return lock
end

-- Leases `lock.permits` to the id until `ends`, and writes `used`.
local function lease_until(ends, id, lock)
    lock.used, lock.first, lock.changed = lock.used + lock.permits, math.min(lock.first, ends), nil
    redis.call('hset', KEYS[1], 'mode', MODE, 'used', string.format('%.0f', lock.used), 'first', string.format('%.0f', lock.first), id, string.format('until:%.0f:%.0f', ends, lock.permits))
    local left = math.ceil((ends - now()) / 1000)
    if redis.call('pttl', KEYS[1]) < left then
        redis.call('pexpire', KEYS[1], string.format('%.0f', left))
    end
end

function lease(id, millis, lock)
    lease_until(ends_by(now(), millis), id, lock)
end

-- Rights to all that `serve` does, asked for once and before the first write.
local asked
local function must_serve(...)
    if not asked then
        asked = true
        must_grant('pttl', 'zrange', 'hget', ARGV[2] == '1' and 'pubsub', ...)
    end
end

-- Grants permits to the first waiters of the queue that come before the id, queued since `began`, while the
-- permits suffice. Returns true if a waiter stays ahead, and `AGAIN` if the call has to be repeated.
local function serve(lock, id, began)
    for _ = 1, GRANTS do
        local winner, over, more = first(id, began)
        local nonce, permits, capacity = string.match(winner and winner.nonce or '', '^(.*)/(%d+)/(%d+)$')
        if not permits or lock.used + permits > tonumber(capacity) then
            if over[1] then
                must('zrem', 'hdel')
                dequeue(over)
            end
            return winner ~= nil or more ~= nil, more
        end
        must_serve()
        lock.permits, winner.nonce = tonumber(permits), nonce
        grant(winner, over, lock)
    end
    return true, AGAIN
end

