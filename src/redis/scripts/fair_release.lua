-- Takes the id out of the queue, and if the lock is leased to it, passes the lock on: to the first of the queue and the next waiter of the
-- same client.
-- ARGV: 8 id, 9 the next waiter's id, or empty, 10 its lease in ms, 11 how many tokens, 12 for how many ms its position is kept, 13 for how many
-- us it has waited.
-- Returns 1 if the id had the lock, 0 if it had not, and if the next waiter has it now, an array with the last of its tokens, if it wanted any.
local id, next, millis, tokens, kept, waited = ARGV[8], ARGV[9], tonumber(ARGV[10]), ARGV[11], ARGV[12], ARGV[13]
local mode, ids = found()
if next ~= '' and mode == 'fair' and ids[1] == next then
    -- This ran before. Its lease is not made shorter: this may come late, when its client has asked for a longer one since.
    must('zrem', 'hset', 'pexpire', tokens ~= '0' and 'get')
    local waits = redis.call('zscore', KEYS[2], id)
    local token = reserve(tokens)
    lease(next, math.max(millis, redis.call('pttl', KEYS[1])), {})
    dequeue({ waits and id })
    return token
end
local frees = mode == 'fair' and ids[1] == id
if not frees then
    local waits = redis.call('zscore', KEYS[2], id)
    -- Also if this ran before, and has put it there.
    local reply = next ~= '' and redis.call('zscore', KEYS[2], next) and 1 or 0
    local winner, over, left = nil, {}, nil
    if not mode and not ids[1] then
        winner, over, left = first(id, math.huge)
    end
    if winner then
        must_pass_on()
        grant(winner, left, {})
    end
    over[#over + 1] = winner
    over[#over + 1] = waits and id
    dequeue(over)
    return reply
end
local began = next ~= '' and since(next, waited) or math.huge
local winner, over, left = first(next, began)
if winner or next ~= '' then
    must_pass_on(tokens ~= '0' and 'get')
end
if winner then
    grant(winner, left, ids)
    if next ~= '' then
        enqueue(next, kept, began)
    end
    over[#over + 1] = winner
    dequeue(over)
    return 1
end
if next == '' then
    free(over)
    return 1
end
local queued = redis.call('zscore', KEYS[2], next)
local token = reserve(tokens)
lease(next, millis, ids)
over[#over + 1] = queued and next
dequeue(over)
return token
