-- Gives the lock from one owner to another, who has it once then. Nobody is told: who it goes to knows.
-- KEYS: 1 the lock, 2 if a token is wanted, the counter of its tokens.
-- ARGV: 1 lease in ms, 2 the owner, 3 the next owner.
-- Returns nil when done, or the next owner's token in an array of one; 0 if neither has the lock.
local done = redis.call('hget', KEYS[1], ARGV[3]) == '1'
if not done and redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
    return 0
end
local token
if KEYS[2] then
    -- Done already, this was sent again, and the answer is the same: nobody else can have had a token since.
    if not done or redis.call('exists', KEYS[2]) == 0 then
        redis.call('incr', KEYS[2])
    end
    token = { redis.call('get', KEYS[2]) }
end
if done then
    local left = redis.call('pttl', KEYS[1])
    if left >= 0 and left < tonumber(ARGV[1]) then
        redis.call('pexpire', KEYS[1], ARGV[1])
    end
else
    -- Not HDEL, so that whoever may acquire and release may do this, too.
    redis.call('del', KEYS[1])
    redis.call('hset', KEYS[1], ARGV[3], '1')
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return token
