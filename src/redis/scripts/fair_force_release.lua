-- Frees the lock, whoever has it, for the first of the queue.
-- Returns what force_release.lua returns.
local mode, ids = found()
if mode and mode ~= 'fair' then
    return mode
end
local winner, over, left = first('', math.huge)
if winner then
    must_pass_on()
    grant(winner, left, ids)
    over[#over + 1] = winner
    dequeue(over)
elseif ids[1] then
    free(over)
else
    dequeue(over)
end
return ids[1] and 1 or 0
