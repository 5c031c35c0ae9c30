-- The time (us) at which a semaphore's lease of `millis` from `clock` ends: see `end_in` in queue.lua. Moved to
-- the next step, a 64th of the lease, and 100 ms at most: one look at all leases takes out those of a step.
local function ends_by(clock, millis)
    local step = math.max(1, math.min(100, math.floor(millis / 64))) * 1000
    return math.ceil((math.floor(clock / 1000) + millis + 1) * 1000 / step) * step
end

