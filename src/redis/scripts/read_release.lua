-- Ends the id's hold for reading, and its waiting. A freed lock goes to the first writer of the queue.
-- KEYS: 6 the id's own lease.
-- ARGV, from OWN on: id.
-- Returns 1 if the id did read, 2 if the lock is free now, 0 if the id did not read; or `AGAIN`.
local id = ARGV[OWN]
local left, lock_left = redis.call('pttl', KEYS[6]), redis.call('pttl', KEYS[1])
local waited = redis.call('zscore', KEYS[4], id)
local invited = redis.call('zscore', KEYS[5], id)
-- If this may be the longest lease, or has no end, the other leases must be known.
local longest = left == -1 or left + 1 >= lock_left
local lock = found(longest and lock_left, id)
if lock.again then
    return bury(lock)
end
local field = lock.mode and redis.call('hexists', KEYS[1], id) == 1
local freed = false
must('zrem', 'hdel', 'pexpire', lock.over and 'hset')
if not lock.taken then
    local winner, over, more = nil, {}, nil
    if not SPARE or not field then
        winner, over, more = first('', math.huge)
        if more then
            -- The id reads until the next holder is known.
            return again(over)
        end
    end
    if winner then
        must_grant()
        grant(winner, over, lock)
    elseif lock.mode then
        free(over, lock)
        freed = true
    else
        dequeue(over)
    end
elseif field then
    if lock.over then
        -- The writer's lease has ended. The order of these writes: see `must` and `must_grant`.
        redis.call('zrem', KEYS[2], '')
        redis.call('hset', KEYS[1], 'mode', 'read')
        redis.call('hdel', KEYS[1], lock.over)
    end
    redis.call('hdel', KEYS[1], id)
    if lock.vacant or longest and lock_left >= 0 then
        last_for(lock.ends and through(holds_for(lock)) or lock.holder and holds_for(lock) or 1, lock.reads or 1, lock.turn)
    end
end
if left > -2 then
    end_lease(KEYS[6])
end
if waited then
    redis.call('zrem', KEYS[4], id)
end
if invited and not freed then
    redis.call('zrem', KEYS[5], id)
end
return field and left > -2 and (freed and 2 or 1) or 0
