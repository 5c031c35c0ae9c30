-- Leases the lock to the id if the lock is free and no queued waiter comes before the id, or extends the id's
-- own lease, see acquire.lua. Otherwise gives the id a position.
-- ARGV, from OWN on: lease in ms, id, number of tokens; and if a position is wanted, its ms, its nonce, and
-- the us for which the id has waited.
-- Returns what acquire.lua returns, but an empty array instead of nil; or `AGAIN`.
local millis, id, tokens, kept, nonce, waited = unpack(ARGV, OWN)
local lock = found()
if lock.again then
    return bury(lock)
end
local ours = lock.holder == id
if lock.taken and not ours then
    if lock.other then
        return lock.other
    end
    local left = lasts(lock)
    must(kept and 'hset', kept and 'zadd', kept and 'pexpire', kept and 'pttl', lock.mode == 'read' and lock.dead[1] and 'hdel')
    if kept then
        enqueue(id, kept, since(id, waited), nonce)
    end
    bury(lock)
    return left
end
local over = {}
if not ours and redis.call('exists', KEYS[2]) == 1 then
    local began, winner, more = since(id, waited), nil, nil
    winner, over, more = first(id, began)
    if more then
        return again(over)
    end
    if winner then
        -- Also removes an ended position of the id.
        over[#over + 1] = not kept and began == math.huge and id or nil
        if kept then
            must_write_and_grant()
            enqueue(id, kept, began, nonce)
        else
            must_grant()
        end
        grant(winner, over, lock)
        return tonumber(winner.millis)
    end
    if redis.call('zscore', KEYS[2], id) then
        over[#over + 1] = id
    end
end
local leaves = over[1] or lock.goes[ours and 2 or 1]
must('pexpire', ours and 'pttl', leaves and 'hdel', over[1] and 'zrem', tokens ~= '0' and 'hset', tokens ~= '0' and 'get')
local token = reserve(tokens)
if ours then
    extend(id, millis, lock)
else
    lease(id, millis, lock)
end
dequeue(over)
return token
