-- Leases the lock to the id for reading if no client holds the lock but readers, and no client waits: the most
-- frequent attempt, in few steps. Does what read_acquire.lua would do without a token.
-- KEYS: 1 the lock, 2 the queue of the writers, 3 the waiting readers, 4 the readers whose turn it is, 5 the id's
-- own lease.  ARGV: 1 lease in ms, 2 id.
-- Returns nil if leased; ms until the client has to ask again if a writer alone holds the lock (-1: no end); or
-- `AGAIN` if read_acquire.lua has to decide, before any write.
local mode, left = redis.call('hget', KEYS[1], 'mode'), redis.call('pttl', KEYS[1])
if mode == 'write' then
    local page = redis.call('hscan', KEYS[1], '0')[2]
    local is_writer = #page == 4 and page[1] == 'mode' and string.sub(page[3], -6) == ':write' and page[4] == '1'
    return is_writer and left or -3
end
-- One arrival in so many looks for dead readers, see read_write.lua.
local CROWD_EACH = 32
local is_free = left == -2 or mode == 'read' and redis.call('time')[2] % CROWD_EACH ~= 0
if not is_free or redis.call('exists', KEYS[2], KEYS[3], KEYS[4], KEYS[5]) > 0 then
    return -3
end
-- A refusal must come before the first write, see acquire.lua.
local may = redis.acl_check_cmd
if not may then
    redis.call('pexpire', KEYS[5], ARGV[1])
    redis.call('set', KEYS[5], '1', 'xx')
end
local refused = may and (not may('set', KEYS[5], '1') and 'set' or not may('pexpire', KEYS[1], ARGV[1]) and 'pexpire')
if refused then
    return redis.error_reply("NOPERM the user has no permissions to run the '" .. refused .. "' command")
end
redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], '1')
redis.call('set', KEYS[5], '1', 'px', ARGV[1])
if left ~= -1 and left < tonumber(ARGV[1]) then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
