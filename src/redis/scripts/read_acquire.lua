-- Leases the lock to the id for reading, for at least `lease` ms: if the id reads already, or its owner
-- writes, or no writer holds the lock and no queued writer comes before the id. Otherwise remembers that the
-- id waits.
-- KEYS: 6 the id's own lease, 7 if a token is wanted, the counter.
-- ARGV, from OWN on: lease in ms, id, the id under which its owner writes or empty, `1` if a token is wanted,
-- `0` if read_free.lua has left the decision to this script, or empty; and if the id waits, the ms for which to remember it, and the us for which it has waited.
-- Returns what queue_acquire.lua returns.
local millis, id, under, fenced, kept, waited = unpack(ARGV, OWN)
local mode = redis.call('hget', KEYS[1], 'mode')
-- While readers hold the lock, their ids do not matter here.
local lock = mode == 'read' and {} or found()
if lock.other then
    return lock.other
end
local left = redis.call('pttl', KEYS[6])
local reads = left > -2 and redis.call('hexists', KEYS[1], id) == 1
local beside = lock.holder == under
local refused, over, more = not reads and not beside and lock.holder, {}, nil
local invited = redis.call('zscore', KEYS[5], id)
if not reads and not beside and not refused and not invited and redis.call('exists', KEYS[2]) == 1 then
    local began = since(id, waited)
    -- A reader that already waited when the readers' turn began takes part in the turn.
    if began > (turn_began() or 0) then
        refused, over, more = first('', began)
        if more then
            return again(over)
        end
    end
end
if refused then
    lock = mode == 'read' and found() or lock
    if lock.again then
        return bury(lock)
    end
    -- Each arrival removes up to two expired entries, so that the set does not grow.
    local silent, forgotten, theirs = kept and redis.call('zrange', KEYS[4], '0', '1', 'withscores') or {}, {}, nil
    for i = 1, #silent, 2 do
        forgotten[#forgotten + 1] = tonumber(silent[i + 1]) <= now() and silent[i] or nil
    end
    if lock.taken then
        theirs = lasts(lock)
        must(kept and 'zadd', kept and 'pexpire', kept and 'pttl', forgotten[1] and 'zrem')
    else
        -- The lock is free, and the writer comes first.
        must_grant(kept and 'zadd', kept and 'pttl')
        grant(refused, over, lock)
        theirs = tonumber(refused.millis)
    end
    if kept then
        if forgotten[1] then
            redis.call('zrem', KEYS[4], unpack(forgotten))
        end
        redis.call('zadd', KEYS[4], string.format('%.0f', now() + kept * 1000), id)
        if redis.call('pttl', KEYS[4]) < tonumber(kept) then
            redis.call('pexpire', KEYS[4], kept)
        end
    end
    return theirs
end
local waits = redis.call('zscore', KEYS[4], id)
-- While one reader stays, no writer removes the dead readers; so some arrivals do.
local chosen = fenced == '0' or now() % CROWD_EACH == 0
local crowd = mode == 'read' and not reads and chosen and found(true) or {}
must('set', 'pexpire', (over[1] or invited or waits) and 'zrem', (lock.over or over[1] or crowd.dead) and 'hdel', fenced == '1' and 'hset', fenced == '1' and 'get')
-- From now on the lock may outlast its writer's lease.
local lock_left = mode and redis.call('pttl', KEYS[1]) or -2
local ends = beside and not lock.ends and lock_left >= 0 and string.format('until:%.0f', end_in(lock_left))
-- Readers share a token until a writer uses up the next. The readers' token is greater than the writer's (see
-- `SPACED`), so late requests of the writer are refused beside the readers.
local token = {}
if fenced == '1' then
    local last = counted()
    token = { last ~= '0' and last or redis.call('incrby', KEYS[7], '1') }
end
redis.call('hset', KEYS[1], 'mode', lock.holder and 'write' or 'read', id, '1')
bury(crowd, id)
if lock.over then
    redis.call('hdel', KEYS[1], lock.over)
end
if ends then
    redis.call('hset', KEYS[1], lock.writer, ends)
end
-- A key without an end (-1: PERSIST by hand) has none until its release.
if left ~= -1 and left < tonumber(millis) then
    redis.call('set', KEYS[6], '1', 'px', millis)
end
if lock_left ~= -1 and lock_left < tonumber(millis) then
    redis.call('pexpire', KEYS[1], millis)
end
if waits then
    redis.call('zrem', KEYS[4], id)
end
if invited then
    redis.call('zrem', KEYS[5], id)
end
dequeue(over)
return token
