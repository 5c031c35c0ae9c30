-- Redisson's read-write lock: a hash with the readers' ids, at most one writer's with `:write` behind it, and
-- the mode. A reader's lease is a key of its own; Redisson's readers have one key for each hold. A reader
-- without a key is dead, and the next script to meet the reader removes it. The writer's lease is the lock's
-- own. If its owner also reads, the value of the writer's field holds the writer's end (us). (No number:
-- Redisson's scripts would count in it.)
-- KEYS: 4 the waiting readers, by the time (us) until when they are remembered; 5 the readers whose turn it
-- is, and `phase`, by the time when the turn began.
-- ARGV: 7 the message to readers, 8 prefix of readers' keys, 9 `1` to leave the lock to other clients.

-- Limit of the readers' turn in us, if no reader takes the lock: then a writer gets the lock.
local TURN = 1000000

local PAGE = '100'

-- One arriving reader in so many looks for dead readers in a crowd.
local CROWD_EACH = 32

-- The longer of two leases in ms (-2: none, -1: no end).
local function longer(one, other)
    return math.min(one, other) == -1 and -1 or math.max(one, other)
end

-- Remaining lease of the reader in ms (-2: ended); adds its keys to `leases`. Looks at `left.keys` keys at
-- most. A reader with more holds counts as reading for as long as the lock lasts, and so does a reader whose
-- key has lost its end (-1): not as the shortest lease. `left.is_here`: the slot is here.
local function reads_for(reader, holds, leases, left)
    local longest, many = -2, tonumber(holds) or 0
    local some = math.min(many, BATCH, left.keys)
    left.keys = left.keys - some
    for hold = 1, some do
        local key = ARGV[8] .. reader .. ':rwlock_timeout:' .. hold
        local lasts = redis.call('pttl', key)
        if lasts > -2 then
            leases[#leases + 1] = key
            longest = longer(longest, lasts == -1 and redis.call('pttl', KEYS[1]) or lasts)
        elseif not left.is_here then
            -- In a slot that is moving here, a missing key may still be at the old node. Ask for two keys:
            -- the server then refuses. (No KEYS: the readers are known only now.)
            redis.call('exists', KEYS[1], key)
            left.is_here = true
        end
    end
    return longer(longest, many > some and redis.call('pttl', KEYS[1]) or -2)
end

-- The end (us) in the value of a writer's field, if any.
local function writes_until(value)
    return tonumber(string.match(value, '^until:(%d+)$'))
end

-- Calls `visit` with each field but the mode, and its value, until `visit` returns true. Begins at any field,
-- so that calls visit different fields, some perhaps twice. `whole`: a page with all fields.
local function each_field(whole, visit)
    -- Divided: a scan begins by a cursor's last bits, mostly zero in read_acquire.lua's now().
    local start = whole and 0 or math.floor(now() / CROWD_EACH)
    local cursor, laps = string.format('%.0f', start), 0
    repeat
        local next, page = '0', whole
        if not whole then
            next, page = unpack(redis.call('hscan', KEYS[1], cursor, 'count', PAGE))
        end
        local fields = #page / 2
        local from = start % math.max(fields, 1)
        for i = 0, fields - 1 do
            local at = 2 * ((from + i) % fields) + 1
            if page[at] ~= 'mode' and visit(page[at], page[at + 1]) then
                return
            end
        end
        cursor = next
        laps = laps + (cursor == '0' and 1 or 0)
    until laps == (whole and 1 or 2)
end

-- Visits the writer's field among more fields than a batch.
local function writer_of_many(visit)
    local cursor = '0'
    repeat
        local next, page = unpack(redis.call('hscan', KEYS[1], cursor, 'match', '*:write', 'count', '1000'))
        for i = 1, #page, 2 do
            visit(page[i], page[i + 1])
        end
        cursor = next
    until cursor == '0'
end

-- True if a reader other than `but` waits: in KEYS[4] or KEYS[5].
local function waits(key, but)
    local last = redis.call('zrange', key, '-2', '-1', 'withscores')
    for i = 1, #last, 2 do
        if last[i] ~= but and tonumber(last[i + 1]) > now() then
            return true
        end
    end
    return false
end

-- The time when the readers' turn began; not if in the future, as readers would overtake writers until then.
local function turn_began()
    local began = tonumber(redis.call('zscore', KEYS[5], 'phase'))
    return began and began <= now() and began
end

-- Remaining ms of the readers' turn, if a reader of that turn other than `but` has not come yet; else 0.
local function turn(but)
    local began = turn_began()
    if not began or not waits(KEYS[5], but) then
        return 0
    end
    return math.max(math.ceil((began + TURN - now()) / 1000), 0)
end

-- Adds to the fields in queue.lua: `mode`, if of a read-write lock. `writer`: the holder's field. `ends`: the
-- end (us) in that field. `over`: the field of a writer whose lease has ended. `readers`: readers and their
-- leases in ms. `reads`: the longest lease. `leases`: their keys. `dead`: fields of dead readers. `more`:
-- there are fields not looked at; `reads` then covers the lock's whole time. `again`: so many dead fields
-- that readers may lie beyond: call `bury`. `turn`: see there.
-- Without a writer, one reader is enough; `all`: true for all readers, or ms: readers up to one with a lease
-- that long. `but`: a reader about to leave.
function found(all, but)
    local lock = { goes = {}, dead = {}, readers = {}, leases = {}, turn = 0 }
    local cursor, page = unpack(redis.call('hscan', KEYS[1], '0', 'count', PAGE))
    local few = cursor == '0' and #page <= 2 * BATCH
    local mode
    for i = 1, #page, 2 do
        mode = page[i] == 'mode' and page[i + 1] or mode
    end
    mode = mode or redis.call('hget', KEYS[1], 'mode')
    if mode ~= 'read' and mode ~= 'write' then
        -- A lock without a mode is Redisson's plain or fair lock.
        lock.other = mode or page[1] and 'lock'
        lock.taken = lock.other
        return lock
    end
    lock.mode = mode
    local value, seen = '', 0
    local alone, left = mode == 'write' and few and #page == 4, { keys = 4 * BATCH }
    local function writes(field, its)
        -- A writer beside a reader has its end as value, unlike a dead reader labelled `write`.
        if mode == 'write' and field ~= but and string.sub(field, -6) == ':write' and not writes_until(value) then
            lock.writer, value = field, its
        end
    end
    each_field(few and page, function(field, its)
        seen = seen + 1
        local reads = not alone and field ~= but and reads_for(field, its, lock.leases, left) or -2
        if reads > -2 then
            lock.reads = longer(lock.reads or -2, reads)
            lock.readers[#lock.readers + 1] = { field, reads }
            lock.more = mode == 'read' and all ~= true and (not all or reads >= all - 1)
        else
            lock.goes[#lock.goes + 1] = field
            if field ~= but and (mode == 'read' or string.sub(field, -6) ~= ':write') then
                lock.dead[#lock.dead + 1] = field
            end
            writes(field, its)
        end
        lock.more = lock.more or seen >= BATCH
        return lock.more
    end)
    if not few and mode == 'write' then
        writer_of_many(writes)
        lock.goes[#lock.goes + 1] = lock.writer
    end
    lock.again = lock.more and not lock.reads and lock.dead[1]
    if lock.more and (all or mode == 'write') then
        lock.reads = longer(lock.reads or -2, redis.call('pttl', KEYS[1]))
    end
    if lock.writer then
        lock.ends = writes_until(value)
        if lock.ends and lock.ends <= now() then
            lock.over, lock.writer = lock.writer, nil
        else
            lock.holder = string.sub(lock.writer, 1, -7)
        end
    end
    -- (read_write_holders.lua has no KEYS[5].)
    if not lock.holder and KEYS[5] then
        lock.turn = turn(but)
    end
    lock.vacant = not lock.reads and lock.turn > 0
    lock.taken = lock.holder or lock.reads or lock.vacant
    return lock
end

function lasts(lock)
    local left = lock.holder and holds_for(lock) or redis.call('pttl', KEYS[1])
    if lock.holder and lock.reads and not lock.ends then
        -- Redisson's writer may go on as a reader, and publishes nothing then.
        return (left < 0 or left > 1000) and 1000 or left
    elseif lock.turn > 0 then
        return math.min(left, lock.turn)
    end
    return left
end

-- Makes the lock last as long as its longest lease; a lease without an end (-1) leaves the lock as it is.
local function last_for(...)
    if math.min(...) >= 0 then
        redis.call('pexpire', KEYS[1], math.max(1, ...))
    end
end

-- Time to live (ms) of a lock whose writer ends in `millis`. (Key expiry and TIME may be 1 ms apart.)
local function through(millis)
    return tonumber(millis) + 1
end

-- Only an owner that already writes has readers beside it. Never deletes the lock, see `dequeue`.
function lease(id, millis, lock)
    local field, reads = id .. ':write', lock.reads
    redis.call('hset', KEYS[1], 'mode', 'write', field, reads and string.format('until:%.0f', end_in(millis)) or '1')
    take_out(lock.goes, field)
    if reads then
        last_for(through(millis), reads)
    else
        redis.call('pexpire', KEYS[1], millis)
    end
end

-- After a writer, readers of other clients may wait, unknown to us.
function free(over, lock)
    must(over[1] and 'zrem', over[1] and 'hdel')
    local turn = redis.call('exists', KEYS[5]) == 1
    -- Publishes first, see release.lua.
    redis.call(ARGV[1], ARGV[3], (lock.holder or waits(KEYS[4])) and ARGV[7] or ARGV[4])
    redis.call('del', KEYS[1])
    if turn then
        redis.call('del', KEYS[5])
    end
    dequeue(over)
end

function let_in(lock)
    local wait = lock.holder and waits(KEYS[4])
    if not lock.reads and not wait then
        return false
    end
    must_write_and_grant(wait and 'rename')
    redis.call(ARGV[1], ARGV[3], ARGV[7])
    -- The first write, see `must`.
    redis.call('hset', KEYS[1], 'mode', 'read')
    take_out(lock.goes)
    if wait then
        redis.call('rename', KEYS[4], KEYS[5])
        redis.call('zadd', KEYS[5], now(), 'phase')
    end
    last_for(lock.reads or 1, wait and TURN / 1000 or 1)
    return true
end

-- Wakes readers that waited only for the leaving writer.
function gone(lock, id, began)
    if lock.holder or lock.other or not waits(KEYS[4]) then
        return
    end
    local next = first(id, math.huge)
    -- (If the next writer is unknown, the readers ask in vain.)
    if not next or tonumber(redis.call('zscore', KEYS[2], next.id)) > began then
        redis.call(ARGV[1], ARGV[3], ARGV[7])
    end
end

-- Keeps the field of `but`, which begins to read. Dead readers beside a writer do no harm: they leave with
-- the writer, unless they fill a batch.
function bury(lock, but)
    if lock.again then
        must('hdel')
    end
    if lock.again or lock.mode == 'read' then
        take_out(lock.dead, but)
    end
    return AGAIN
end

