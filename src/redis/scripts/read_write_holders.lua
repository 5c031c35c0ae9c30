-- The holders of the lock, one page.
-- KEYS: the lock.
-- ARGV, from OWN on: the cursor that the page before returned; first `0`.
-- Returns an array: the writer and its remaining ms, or nil; the cursor of the next page, `0` behind the last;
-- an array with each reader of the page and its remaining ms; the `mode` of another kind of lock, or nil.
local lock = found()
if lock.other then
    return { false, '0', {}, lock.other }
end
-- All of a small hash comes at once: some hundred fields by the server's setting.
local next, page = unpack(redis.call('hscan', KEYS[1], ARGV[OWN], 'count', '50'))
local left, readers = { keys = 6 * BATCH }, {}
for i = 1, #page, 2 do
    local reads = page[i] ~= lock.writer and reads_for(page[i], page[i + 1], {}, left) or -2
    if reads > -2 then
        readers[#readers + 1] = { page[i], reads }
    end
end
return { lock.holder and { lock.holder, holds_for(lock) } or false, next, readers, false }
