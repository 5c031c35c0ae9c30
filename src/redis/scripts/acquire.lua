-- Makes the owner have the lock so often: if it has it already, or if the lock is free and it is to have it once.
-- KEYS: 1 the lock, 2 if a token is wanted, the counter of its tokens.
-- ARGV: 1 lease in ms, 2 owner, 3 how many holds the owner is to have.
-- Returns nil when taken, or its token in an array of one. Otherwise how many ms the other owner's lease lasts (-1: without
-- end), or -2 if there is no other owner: then the holds that the owner should have had before this one are gone.
local holds = redis.call('hget', KEYS[1], ARGV[2])
if not holds and (ARGV[3] ~= '1' or redis.call('exists', KEYS[1]) == 1) then
    return redis.call('pttl', KEYS[1])
end
local token
if KEYS[2] then
    -- An owner that has what it asks for is asking again, and is told the same: nobody else can have had a token since.
    if holds ~= ARGV[3] or redis.call('exists', KEYS[2]) == 0 then
        -- The first write of all, because it can fail: then the lock is not taken.
        redis.call('incr', KEYS[2])
    end
    token = { redis.call('get', KEYS[2]) }
end
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
-- An inner hold with a short lease must not cut the outer one short.
local left = redis.call('pttl', KEYS[1])
if not holds or (left >= 0 and left < tonumber(ARGV[1])) then
    redis.call('pexpire', KEYS[1], ARGV[1])
end
return token
