-- The most frequent releases of permits, in few steps, as the next holder waits for each: no lease has ended,
-- and no client waits, or the first waiter listens, has a lasting position and fits, and the second does not.
-- Does what permits_release.lua would do. All other cases fall through, before any write, to
-- permits_release.lua, behind functions that take time to define.
-- KEYS and ARGV: see queue.lua and permits_release.lua.
local may = redis.acl_check_cmd
if may then
    local id, time = ARGV[OWN], redis.call('time')
    local mode, used, ends, own = unpack(redis.call('hmget', KEYS[1], 'mode', 'used', 'first', id))
    local clock, permits = time[1] * 1000000 + time[2], own and string.match(own, ':(%d+)$')
    if mode == MODE and permits and (tonumber(ends) or 0) > clock and may('hdel', KEYS[1], id) and may('hset', KEYS[1], 'mode', '') then
        local left, waiters = (tonumber(used) or 0) - permits, redis.call('zrange', KEYS[2], '0', '1')
        local waiter = waiters[1]
        if not waiter and left > 0 then
            redis.call('hdel', KEYS[1], id)
            redis.call('hset', KEYS[1], 'used', string.format('%.0f', left))
            return 1
        end
        if waiter and left >= 0 and waiter ~= id then
            local channel, listens = ARGV[5] .. string.sub(waiter, 1, 36), ARGV[1] == 'spublish' and 'shardnumsub' or 'numsub'
            local deaf = ARGV[2] == '1' and redis.call('pubsub', listens, channel)[2] == 0
            local kept, behind = unpack(redis.call('hmget', KEYS[3], waiter, waiters[2] or waiter))
            local till, nonce, wanted, capacity = string.match(kept or '', '^(%d+):(.*)/(%d+)/(%d+)$')
            local millis = math.ceil(((tonumber(till) or 0) - clock) / 1000)
            left = left + (wanted or 0)
            local more, limit = string.match(waiters[2] and behind or '', '/(%d+)/(%d+)$')
            local fits = wanted and left <= tonumber(capacity) and not (waiters[2] and not more) and not (more and left + more <= tonumber(limit))
            -- The rights that `must_serve` checks; a removal is the first write.
            if fits and not deaf and millis > 0 and may('pexpire', KEYS[1], '1') and may(ARGV[1], channel, '') then
                local lasts = ends_by(clock, millis)
                redis.call('zrem', KEYS[2], waiter)
                redis.call('hdel', KEYS[3], waiter)
                redis.call('hdel', KEYS[1], id)
                redis.call('hset', KEYS[1], 'used', string.format('%.0f', left), 'first', string.format('%.0f', math.min(ends, lasts)), waiter, string.format('until:%.0f:%s', lasts, wanted))
                redis.call('pexpire', KEYS[1], string.format('%.0f', math.ceil((lasts - clock) / 1000)), 'gt')
                redis.call(ARGV[1], channel, ARGV[6] .. string.match(waiter, ':(%d+)', 37) .. ':' .. nonce)
                return 1
            end
        end
    end
end
