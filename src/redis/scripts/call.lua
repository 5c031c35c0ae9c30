-- Calls up to `wanted` of the clients that wait for a plain lock, the longest wait first. Returns the number
-- of called clients.
-- KEYS: 2 the waiting clients: a sorted set of the ids that they ask by, by the start of each wait. (An id's
-- late or repeated release takes no other id of its client out.)
-- ARGV: 2 the lock's channel, 3 the publishing command unless PUBLISH, 4 `1` if the server does not know of
-- all subscribers. (The server parses each argument even if no client waits, so the names of the channels are
-- made here. See keys.rs.)
local function call(wanted)
    local channels, called = string.sub(KEYS[2], 1, -8) .. 'call:', 0
    for _ = 1, 500 do
        -- An error reply has no first element.
        local first = redis.pcall('zpopmin', KEYS[2])[1]
        local channel = first and channels .. string.sub(first, 1, 36)
        local heard = first and redis.pcall(ARGV[3] or 'publish', channel, '0')
        if type(heard) ~= 'number' then
            break
        end
        -- A client without a subscription is gone.
        if heard > 0 or ARGV[4] then
            called = called + 1
            if called == wanted then
                break
            end
        end
    end
    return called
end

