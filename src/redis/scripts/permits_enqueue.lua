-- The most frequent attempts, in few steps: no lease has ended, the id has neither lease nor position, and no
-- client waits and the permits suffice, or they do not and the id wants a position. Does what
-- permits_acquire.lua would do. All other cases fall through, before any write, to permits_acquire.lua, behind
-- functions that take time to define.
-- KEYS and ARGV: see queue.lua and permits_acquire.lua.
local may = redis.acl_check_cmd
if may then
    local millis, id, permits, capacity, kept, nonce, waited = unpack(ARGV, OWN)
    local mode, used, ends, own = unpack(redis.call('hmget', KEYS[1], 'mode', 'used', 'first', id))
    local time = redis.call('time')
    local clock, left = time[1] * 1000000 + time[2], (tonumber(used) or 0) + permits
    if mode == MODE and not own and (tonumber(ends) or 0) > clock and may('hset', KEYS[1], 'mode', '') and may('pexpire', KEYS[1], '1') and may('pttl', KEYS[1]) then
        if left <= tonumber(capacity) and redis.call('exists', KEYS[2]) == 0 then
            local lasts = ends_by(clock, millis)
            redis.call('hset', KEYS[1], 'used', string.format('%.0f', left), 'first', string.format('%.0f', math.min(ends, lasts)), id, string.format('until:%.0f:%s', lasts, permits))
            redis.call('pexpire', KEYS[1], string.format('%.0f', math.ceil((lasts - clock) / 1000)), 'gt')
            return nil
        end
        if left > tonumber(capacity) and kept and redis.call('zadd', KEYS[2], 'nx', string.format('%.0f', clock - waited), id) == 1 then
            redis.call('hset', KEYS[3], id, string.format('%016.0f:%s/%s/%s', clock + kept * 1000, nonce, permits, capacity))
            if math.min(redis.call('pttl', KEYS[2]), redis.call('pttl', KEYS[3])) < tonumber(kept) then
                redis.call('pexpire', KEYS[2], kept)
                redis.call('pexpire', KEYS[3], kept)
            end
            return math.ceil((ends - clock) / 1000) - 1
        end
    end
end
