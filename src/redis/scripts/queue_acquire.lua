-- Leases the lock to the id for exactly so long, if it is leased to it already, or free and nobody comes before the id in the queue. Otherwise
-- gives the id a position.
-- ARGV, from OWN on: lease in ms, id, how many tokens, for how many ms the position is kept, or empty if none
-- is wanted, the nonce of the position, for how many us the id has waited, or empty.
-- Returns what acquire.lua returns, but for an empty array in the place of nil; or `AGAIN`.
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
    local waits = kept ~= ''
    must(waits and 'hset', waits and 'zadd', waits and 'pexpire', lock.mode == 'read' and lock.dead[1] and 'hdel')
    if kept ~= '' then
        enqueue(id, kept, since(id, waited), nonce)
    end
    bury(lock)
    return left
end
local over = {}
if not ours and redis.call('exists', KEYS[2]) == 1 then
    local began, winner, left, more = since(id, waited), nil, nil, nil
    winner, over, left, more = first(id, began)
    if more then
        return again(over)
    end
    if winner then
        -- A position that is over is none.
        local lapsed = kept == '' and began == math.huge and redis.call('zscore', KEYS[2], id)
        must_pass_on()
        grant(winner, left, lock)
        if kept ~= '' then
            enqueue(id, kept, began, nonce)
        end
        over[#over + 1] = winner
        over[#over + 1] = lapsed and id
        dequeue(over)
        return left
    end
    if redis.call('zscore', KEYS[2], id) then
        over[#over + 1] = id
    end
end
local leaves = over[1] or lock.goes[ours and 2 or 1]
must('pexpire', leaves and 'hdel', over[1] and 'zrem', tokens ~= '0' and 'hset', tokens ~= '0' and 'get')
if ours then
    local left = lasts(lock)
    if left < 0 or left > tonumber(millis) then
        -- Others wait for the lease to end, and it ends earlier from now on. First, for the reason given in release.lua.
        tell(ARGV[4], ENDS)
    end
end
local token = reserve(tokens)
lease(id, millis, lock)
dequeue(over)
return token
