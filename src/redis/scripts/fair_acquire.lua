-- Leases the lock to the id for exactly so long, if it is leased to it already, or free and nobody comes before the id in the queue. Otherwise
-- gives the id a position.
-- ARGV: 8 lease in ms, 9 id, 10 how many tokens, 11 for how many ms the position is kept, or empty if none is wanted, 12 for how many us
-- the id has waited, or empty.
-- Returns what acquire.lua returns, but for an empty array in the place of nil.
local millis, id, tokens, kept, waited = tonumber(ARGV[8]), ARGV[9], ARGV[10], ARGV[11], ARGV[12]
local mode, ids = found()
local ours = mode == 'fair' and ids[1] == id
if not ours and (mode or ids[1]) then
    if mode and mode ~= 'fair' then
        return mode
    end
    local left = redis.call('pttl', KEYS[1])
    if kept ~= '' then
        must('zadd', 'pexpire')
        enqueue(id, kept, since(id, waited))
    end
    -- Without a mode it is a lock of Redisson's, as in acquire.lua.
    return not mode and (left < 0 or left > 1000) and 1000 or left
end
local over = {}
if not ours and redis.call('exists', KEYS[2]) == 1 then
    local began, winner, left = since(id, waited), nil, nil
    winner, over, left = first(id, began)
    if winner then
        -- A position that is over is none.
        local lapsed = kept == '' and began == math.huge and redis.call('zscore', KEYS[2], id)
        must_pass_on()
        grant(winner, left, {})
        if kept ~= '' then
            enqueue(id, kept, began)
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
must('pexpire', over[1] and 'zrem', tokens ~= '0' and 'hset', tokens ~= '0' and 'get')
if ours then
    local left = redis.call('pttl', KEYS[1])
    if left < 0 or left > millis then
        -- Others wait for the lease to end, and it ends earlier from now on. First, for the reason given in release.lua.
        tell(ARGV[4], ARGV[5])
    end
end
local token = reserve(tokens)
lease(id, millis, {})
dequeue(over)
return token
