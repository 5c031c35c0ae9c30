-- The constants of a read-write lock for writers, see fair_kind.lua.
local OWN, MODE, WRITER, READERS, SPARE, SPACED = 10, 'write', ':write', KEYS[4], ARGV[9] == '1', true
