-- The end (us) of a semaphore's lease of `millis`, moved to the next step: a 64th of the lease, and 100 ms at
-- most. One look at all leases takes out those of a step.
local function in_steps(ends, millis)
    local step = math.max(1, math.min(100, math.floor(millis / 64))) * 1000
    return math.ceil(ends / step) * step
end

