-- A fair lock: a hash with one id beside its mode.
-- KEYS: 4 the queue of Redisson's fair lock.

function found()
    local lock = { goes = {} }
    local cursor, page = unpack(redis.call('hscan', KEYS[1], '0'))
    if not page[1] then
        return lock
    end
    local mode
    for i = 1, #page, 2 do
        if page[i] == 'mode' then
            mode = page[i + 1]
        else
            lock.goes[#lock.goes + 1] = page[i]
        end
    end
    lock.taken = true
    if cursor ~= '0' or #page > 20 then
        -- A fair lock never has so many fields.
        lock.other = 'crowd'
        return lock
    end
    lock.other = mode and mode ~= 'fair' and mode
    lock.holder = mode == 'fair' and lock.goes[1]
    -- A lock without a mode is Redisson's, see acquire.lua.
    lock.foreign = not mode
    return lock
end

function lasts(lock)
    local left = redis.call('pttl', KEYS[1])
    return lock.foreign and (left < 0 or left > 1000) and 1000 or left
end

-- Never deletes the lock, see `dequeue`.
function lease(id, millis, lock)
    redis.call('hset', KEYS[1], 'mode', MODE, id, '1')
    take_out(lock.goes, id)
    redis.call('pexpire', KEYS[1], millis)
end

-- Tells Redisson's plain and fair locks, each on its own channel.
function free(over)
    must(over[1] and 'zrem', over[1] and 'hdel')
    local foreign = redis.call('lindex', KEYS[4], '0')
    -- Publishes first, see release.lua.
    redis.call(ARGV[1], ARGV[3], ARGV[4])
    if foreign then
        redis.call(ARGV[1], ARGV[3] .. ':' .. foreign, ARGV[4])
    end
    redis.call('del', KEYS[1])
    dequeue(over)
end

function let_in()
    return false
end

function gone() end

function bury() end

