-- The constants of a semaphore: see fair_kind.lua.
local OWN, MODE = 7, 'permits'
