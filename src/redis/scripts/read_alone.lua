-- The most frequent end of a hold for reading, in few steps: the id alone holds the lock, and no client waits.
-- Does what read_release.lua would do. All other cases fall through, before any write, to read_release.lua.
-- KEYS and ARGV: see queue.lua and read_release.lua.
local may = redis.acl_check_cmd
if may and redis.call('exists', KEYS[2], KEYS[4], KEYS[5]) == 0 then
    local page = redis.call('hscan', KEYS[1], '0')[2]
    local alone = #page == 4 and page[1] == 'mode' and page[2] == 'read' and page[3] == ARGV[OWN] and page[4] == '1'
    if alone and may('pexpire', KEYS[6], '0') then
        -- Publishes first, see release.lua.
        redis.call(ARGV[1], ARGV[3], ARGV[4])
        redis.call('del', KEYS[1])
        return redis.call('pexpire', KEYS[6], '0') == 1 and 2 or 0
    end
end

