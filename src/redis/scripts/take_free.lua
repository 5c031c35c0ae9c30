-- Leases a fair lock, or a read-write lock for writing, to the id if the lock is free and no client is queued:
-- the most frequent attempt, in few steps. Does what queue_acquire.lua would do without tokens.
-- KEYS: 1 the lock, 2 the queue.  ARGV: 1 lease in ms, 2 the holder's field, 3 the lock's `mode`.
-- Returns nil if leased; ms until the client has to ask again if another id alone holds the lock (-1: no end);
-- or `AGAIN` if queue_acquire.lua has to decide, before any write.
if redis.call('exists', KEYS[1], KEYS[2]) > 0 then
    local page = redis.call('hscan', KEYS[1], '0')[2]
    local is_holder = #page == 4 and page[1] == 'mode' and page[2] == ARGV[3] and page[3] ~= ARGV[2] and page[4] == '1'
    if is_holder and (ARGV[3] == 'fair' or string.sub(page[3], -6) == ':write') then
        return redis.call('pttl', KEYS[1])
    end
    return -3
end
-- A refusal must come before the first write, see acquire.lua.
local may = redis.acl_check_cmd
if not may then
    redis.call('pexpire', KEYS[1], ARGV[1])
elseif not may('pexpire', KEYS[1], ARGV[1]) then
    return redis.error_reply("NOPERM the user has no permissions to run the 'pexpire' command")
end
redis.call('hset', KEYS[1], 'mode', ARGV[3], ARGV[2], '1')
redis.call('pexpire', KEYS[1], ARGV[1])
