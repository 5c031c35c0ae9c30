-- The holders of the lock, one page.
-- KEYS: the lock.
-- ARGV, from OWN on: the start of the page as the page before returned it; first `0` and an empty text.
-- Returns an array: the writer and its remaining ms, or nil; the start of the next page, or nil; an array with
-- each reader of the page and its remaining ms; the `mode` of another kind of lock, or nil.

-- Limit of readers in a page. Fewer than a batch: each costs at least one more PTTL.
local READERS = 50
local MORE = 10

local cursor, after = ARGV[OWN], ARGV[OWN + 1]
local lock = found()
if lock.other then
    return { false, false, {}, lock.other }
end
local next, page = unpack(redis.call('hscan', KEYS[1], cursor, 'count', READERS))
-- HSCAN returns all of a small hash, which is a list: show it in parts, from behind the last field shown.
-- (Not by its index: fields move up when a reader leaves.) If that field has left, or the hash is a list no
-- more, all readers are shown again.
local is_list = cursor == '0' and next == '0' and #page > 2 * (READERS + MORE)
local begins, ends = 1, #page
if is_list then
    for i = 1, #page, 2 do
        begins = page[i] == after and i + 2 or begins
    end
    ends = math.min(#page, begins - 1 + 2 * READERS)
end
local left, found_here = { keys = 4 * BATCH }, {}
for i = begins, ends, 2 do
    local reader = page[i]
    local reads = reader ~= lock.writer and reads_for(reader, page[i + 1], {}, left) or -2
    if reads > -2 then
        found_here[#found_here + 1] = { reader, reads }
    end
end
local rest = false
if ends < #page then
    rest = { cursor, page[ends - 1] }
elseif next ~= '0' then
    rest = { next, '' }
end
return { lock.holder and { lock.holder, holds_for(lock) } or false, rest, found_here, false }
