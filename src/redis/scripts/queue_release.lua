-- Takes the id out of the queue, and if the lock is leased to it, passes the lock on: to those whom the kind lets in first, or to the first of the
-- queue and the next waiter of the same client.
-- ARGV, from OWN on: id, and if there is one, the next waiter's id, its lease in ms, how many tokens, for how many ms its position is kept, that
-- one's nonce, for how many us it has waited.
-- Returns 1 if the id had the lock, 2 if nobody has it now, 0 if the id had not had it, and if the next waiter has it now, an array with the last
-- of its tokens, if it wanted any; or `AGAIN`.
local id, next, millis, tokens, kept, nonce, waited = unpack(ARGV, OWN)
local lock = found()
if lock.again then
    return bury(lock)
end
if next and lock.holder == next then
    -- This ran before.
    must('zrem', 'hset', 'pexpire', 'pttl', 'hdel', tokens ~= '0' and 'get')
    local token = reserve(tokens)
    extend(next, millis, lock)
    dequeue({ id })
    return token
end
if lock.holder ~= id then
    local waits = redis.call('zscore', KEYS[2], id)
    -- Also if this ran before, and has put it there.
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
    -- It has the lock until it is known to whom that goes.
    return again(over)
end
if next then
    must_write_and_grant(tokens ~= '0' and 'get', SPARE and 'del')
elseif winner then
    must_grant(SPARE and 'del')
end
if SPARE or not winner and not next then
    if next then
        -- Before 7.0 `must` cannot ask for HSET, which the next waiter needs after DEL: so what stands there is written once more.
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
