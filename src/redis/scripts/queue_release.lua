-- Removes the id from the queue. If the id holds the lock, passes the lock on: to readers that the kind lets
-- in, or to the first of the queue and the next waiter of the same client.
-- ARGV, from OWN on: id; and if a next waiter is named, its id, lease in ms, number of tokens, ms of its
-- position, nonce, and the us for which it has waited.
-- Returns 1 if the id held the lock, 2 if the lock is free now, 0 if the id did not hold the lock, an array
-- with the last token (if wanted) if the next waiter has the lock now; or `AGAIN`.
local id, next, millis, tokens, kept, nonce, waited = unpack(ARGV, OWN)
local lock = found()
if lock.again then
    return bury(lock)
end
if next and lock.holder == next then
    -- This call ran before.
    must('zrem', 'hset', 'pexpire', 'pttl', 'hdel', tokens ~= '0' and 'get')
    local token = reserve(tokens)
    extend(next, millis, lock)
    dequeue({ id })
    return token
end
if lock.holder ~= id then
    local waits = redis.call('zscore', KEYS[2], id)
    -- 1 if this call ran before and enqueued `next`.
    local reply = next and redis.call('zscore', KEYS[2], next) and 1 or 0
    local winner, over, more = nil, {}, nil
    if not lock.taken then
        winner, over, more = first(id, math.huge)
        if more then
            return again(over)
        end
    end
    local leaves = waits or over[1]
    over[#over + 1] = waits and id
    if winner then
        must_grant()
        grant(winner, over, lock)
    else
        must(leaves and 'zrem', leaves and 'hdel')
        if waits then
            gone(lock, id, tonumber(waits))
        end
        dequeue(over)
    end
    return reply
end
local began = next and since(next, waited) or math.huge
if let_in(lock) then
    if next then
        enqueue(next, kept, began, nonce)
    end
    return 1
end
local winner, over, more = first(next, began)
if more then
    -- The id keeps the lock until the next holder is known.
    return again(over)
end
if next then
    must_write_and_grant(tokens ~= '0' and 'get', SPARE and 'del')
elseif winner then
    must_grant(SPARE and 'del')
end
if SPARE or not winner and not next then
    if next then
        -- HSET once more before DEL: before 7.0 `must` cannot check HSET, which `enqueue` needs.
        redis.call('hset', KEYS[1], 'mode', MODE)
    end
    free(next and {} or over, lock)
    if next then
        enqueue(next, kept, began, nonce)
    end
    return 2
end
if winner then
    if next then
        enqueue(next, kept, began, nonce)
    end
    grant(winner, over, lock)
    return 1
end
local queued = redis.call('zscore', KEYS[2], next)
local token = reserve(tokens)
lease(next, millis, lock)
over[#over + 1] = queued and next
dequeue(over)
return token
