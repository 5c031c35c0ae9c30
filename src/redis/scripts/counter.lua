-- The last token given out. Fails if another program's value is no such number, or leaves too little room
-- below 2^63. The last key is the counter.
local function counted()
    local last = redis.call('get', KEYS[#KEYS]) or '0'
    local is_high = #last > 19 or #last == 19 and last > '9223372036854770000'
    if last ~= '0' and (is_high or not string.find(last, '^[1-9]%d*$')) then
        error('NOCOUNTER')
    end
    return last
end

