-- A read-write lock, as Redisson keeps it: a hash with readers' ids and at most one writer's, which ends in `:write`, beside its mode. A reader's
-- own lease is a key beside the lock; Redisson's have one for each hold. A reader without such a key is dead, and ended by whoever meets it.
-- A writer's lease is the lock's own. If its owner reads as well, which may be for longer, the value of the writer's field says until when it
-- writes (us). That is no number, for Redisson's scripts: they count to it.
-- KEYS: 4 the ids that wait to read, by the time until when they are remembered (us), 5 those of them whose turn it is, and `phase`, by the time
-- when that began.
-- ARGV: 8 the message to readers, 9 with what readers' keys begin, 10 `1` to leave the lock to strangers.

-- How long readers have their turn before a writer gets the lock that none of them has taken (us).
local TURN = 1000000

-- `BATCH` in words.
local PAGE = '100'

-- One of so many readers that come looks for those among many who are dead.
local CROWD_EACH = 32

-- The longer of two leases in ms (-2: none, -1: one without end).
local function longer(one, other)
    return math.min(one, other) == -1 and -1 or math.max(one, other)
end

-- For how many ms the reader's lease lasts, -2 if it is over. Its keys are put to `leases`. How many to look at is a
-- number that stands in the data: `left.keys` says how many may be looked at. If there are others, it reads at least
-- as long as the lock lasts (-1: without end), as one of these may. So does one whose lease has lost its end: taken
-- for the shortest of all, it would lose the lock with the next reader that leaves. `left.is_here`: the slot is.
local function reads_for(reader, holds, leases, left)
    local longest, many = -2, tonumber(holds) or 0
    local some = math.min(many, BATCH, left.keys)
    left.keys = left.keys - some
    for hold = 1, some do
        local key = ARGV[9] .. reader .. ':rwlock_timeout:' .. hold
        local lasts = redis.call('pttl', key)
        if lasts > -2 then
            leases[#leases + 1] = key
            longest = longer(longest, lasts == -1 and redis.call('pttl', KEYS[1]) or lasts)
        elseif not left.is_here then
            -- In a slot that is just coming here, a key that is not yet here cannot be told from one that is nowhere, and only what asks for
            -- several is refused then: for one that is missing that is enough. (It is not among KEYS: who reads is known only now.)
            redis.call('exists', KEYS[1], key)
            left.is_here = true
        end
    end
    return longer(longest, many > some and redis.call('pttl', KEYS[1]) or -2)
end

-- Until when the writer's field with that value says that it writes (us), if it says so.
local function writes_until(value)
    return tonumber(string.match(value, '^until:(%d+)$'))
end

-- Calls `visit` with fields beside the mode, and their values, until that returns true: with those of `whole`, if one page holds all; otherwise from
-- any of them on, so that those who are visited are not the same each time; some may be visited twice then.
local function each_field(whole, visit)
    -- (A cursor begins with its last bits, which are not any at a time that was chosen by them, see read_acquire.lua.)
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

-- The field, and its value, of the writer among more fields than a batch holds.
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

-- Whether anybody beside that id is there: KEYS[4] or KEYS[5].
local function waits(key, but)
    local last = redis.call('zrange', key, '-2', '-1', 'withscores')
    for i = 1, #last, 2 do
        if last[i] ~= but and tonumber(last[i + 1]) > now() then
            return true
        end
    end
    return false
end

-- When the readers' turn began, if they had one. (If that is still to come, the clock was set back: readers would come before writers until then.)
local function turn_began()
    local began = tonumber(redis.call('zscore', KEYS[5], 'phase'))
    return began and began <= now() and began
end

-- For how many ms the readers still have their turn, if one that it is for, beside that id, has not come yet.
local function turn(but)
    local began = turn_began()
    if not began or not waits(KEYS[5], but) then
        return 0
    end
    return math.max(math.ceil((began + TURN - now()) / 1000), 0)
end

-- Besides: `mode`, if it is one of a read-write lock. `writer`: the field of the holder, `ends`: until when it says that it writes. `over`: the field
-- of one that writes no more. `readers`: who reads, and for how many ms, `reads`: the longest of these, `leases`: their keys; if nobody writes, one
-- reader is enough, unless `all` are wanted, or those until one of them reads for so many ms. `dead`: the fields of readers that are. `more`: there
-- are others yet; then `reads` is how long the lock lasts. `again`: so many fields are dead that it is not known whether there are readers: only
-- `bury` is left to do. `turn`: see there. `but`: a reader that is to go.
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
        -- Without a mode it is a plain or a fair lock of Redisson's.
        lock.other = mode or page[1] and 'lock'
        lock.taken = lock.other
        return lock
    end
    lock.mode = mode
    local value, seen = '', 0
    local alone, left = mode == 'write' and few and #page == 4, { keys = 4 * BATCH }
    local function writes(field, its)
        -- A dead reader's label may be `write`, too. The writer beside it says until when it writes.
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
    -- (Who only wants to see who has it does not say where.)
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
        -- One of Redisson's, which may go on as a reader, and tells nobody.
        return (left < 0 or left > 1000) and 1000 or left
    elseif lock.turn > 0 then
        return math.min(left, lock.turn)
    end
    return left
end

-- Makes the lock last as long as the longest of its leases: with one that has no end (-1) as it does already.
local function last_for(...)
    if math.min(...) >= 0 then
        redis.call('pexpire', KEYS[1], math.max(1, ...))
    end
end

-- For how many ms the lock's key is to last for a writer that writes for so many by its field. (Servers differ in which of them stands still
-- in a script, the time of its keys or TIME: a millisecond may lie between them.)
local function through(millis)
    return tonumber(millis) + 1
end

-- Only one who writes already has readers beside it. The lock is never deleted in between, for the reason given above `dequeue`.
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

-- After a writer strangers may wait to read, of whom we do not know.
function free(over, lock)
    must(over[1] and 'zrem', over[1] and 'hdel')
    local turn = redis.call('exists', KEYS[5]) == 1
    -- First, for the reason given in release.lua.
    tell(ARGV[4], (lock.holder or waits(KEYS[4])) and ARGV[8] or ARGV[5])
    redis.call('del', KEYS[1])
    if turn then
        redis.call('del', KEYS[5])
    end
    dequeue(over)
end

-- Who reads beside the writer reads on; and who waits to read has its turn before the next writer.
function let_in(lock)
    local wait = lock.holder and waits(KEYS[4])
    if not lock.reads and not wait then
        return false
    end
    must_write_and_grant(wait and 'rename')
    tell(ARGV[4], ARGV[8])
    -- The first write, as `must` says.
    redis.call('hset', KEYS[1], 'mode', 'read')
    take_out(lock.goes)
    if wait then
        redis.call('rename', KEYS[4], KEYS[5])
        redis.call('zadd', KEYS[5], now(), 'phase')
    end
    last_for(lock.reads or 1, wait and TURN / 1000 or 1)
    return true
end

-- Readers that wait for nobody but this writer have nothing to wait for.
function gone(lock, id, began)
    if lock.holder or lock.other or not waits(KEYS[4]) then
        return
    end
    local next = first(id, math.huge)
    -- (If that is not known, they ask for nothing.)
    if not next or tonumber(redis.call('zscore', KEYS[2], next.id)) > began then
        tell(ARGV[4], ARGV[8])
    end
end

-- Not the field of `but`, which reads from now on. A dead reader beside a writer keeps no other writer out, and goes with
-- it, unless it is in the way.
function bury(lock, but)
    if lock.again then
        must('hdel')
    end
    if lock.again or lock.mode == 'read' then
        take_out(lock.dead, but)
    end
    return AGAIN
end

