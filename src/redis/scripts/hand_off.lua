-- The most frequent releases, in few steps, as the next holder waits for each: the id alone holds the lock and
-- names no next waiter, no reader waits, and no client waits at all, or the first waiter listens and has a
-- lasting position. Does what queue_release.lua would do. All other cases fall through, before any write, to
-- queue_release.lua, behind functions that take time to define.
-- KEYS and ARGV: see queue.lua and queue_release.lua.
local may = redis.acl_check_cmd
if may and not ARGV[OWN + 1] then
    local first, holder = redis.call('zrange', KEYS[2], '0', '0')[1], ARGV[OWN] .. WRITER
    local page = redis.call('hscan', KEYS[1], '0')[2]
    local alone = #page == 4 and page[1] == 'mode' and page[2] == MODE and page[3] == holder and page[4] == '1'
    if alone and not first and redis.call('exists', KEYS[4], KEYS[READERS and 5 or 4]) == 0 then
        -- Publishes first, see release.lua.
        redis.call(ARGV[1], ARGV[3], READERS and ARGV[7] or ARGV[4])
        redis.call('del', KEYS[1])
        return 2
    end
    if alone and first and not SPARE and first ~= ARGV[OWN] and not (READERS and redis.call('exists', READERS) == 1) then
        local channel, listens = ARGV[5] .. string.sub(first, 1, 36), ARGV[1] == 'spublish' and 'shardnumsub' or 'numsub'
        local deaf = ARGV[2] == '1' and redis.call('pubsub', listens, channel)[2] == 0
        local kept, clock = not deaf and redis.call('hget', KEYS[3], first) or '', redis.call('time')
        local left = (tonumber(string.sub(kept, 1, 16)) or 0) - clock[1] * 1000000 - clock[2]
        -- The rights that `must_grant` checks; a removal is the first write. (queue_release.lua reports a
        -- refusal.)
        if left > 0 and may('hset', KEYS[1], 'mode', '') and may('hdel', KEYS[1], '') and may('pexpire', KEYS[1], '1') and may(ARGV[1], channel, '') then
            redis.call('zrem', KEYS[2], first)
            redis.call('hdel', KEYS[3], first)
            redis.call('hset', KEYS[1], first .. WRITER, '1')
            redis.call('hdel', KEYS[1], holder)
            redis.call('pexpire', KEYS[1], string.format('%.0f', math.ceil(left / 1000)))
            redis.call(ARGV[1], channel, ARGV[6] .. string.match(first, ':(%d+)', 37) .. ':' .. string.sub(kept, 18))
            return 1
        end
    end
end

