-- Who has the lock: a page of it.
-- KEYS: the lock.
-- ARGV, from OWN on: where the page begins, as the page before says; first `0` and nothing.
-- Returns an array: the writer and for how many ms its lease lasts, or nil; where the next page begins, or nil if there is none; and each reader of
-- the page and for how many ms its lease lasts. Or the text of the lock's `mode` if it is another kind of lock.

-- So many readers at most, and fewer than a batch: each costs at least one question more, for its lease.
local READERS = 50
-- A page of a hash that is no list has hardly more of them than it is to have.
local MORE = 10

local cursor, after = ARGV[OWN], ARGV[OWN + 1]
local lock = found()
if lock.other then
    return lock.other
end
local next, page = unpack(redis.call('hscan', KEYS[1], cursor, 'count', READERS))
-- A hash that is small is a list, and in one page, however many a page is to hold. Only such a page is shown in parts: behind the field that was the
-- last one, and not at its place, as with each reader that leaves the others move up. If that very one has left, or the hash is a list no more, which
-- may have put them in another order, all are shown again.
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
return { lock.holder and { lock.holder, holds_for(lock) } or false, rest, unpack(found_here) }
