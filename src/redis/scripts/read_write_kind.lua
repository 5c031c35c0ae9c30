-- The constants of a read-write lock for writers, see fair_kind.lua.
local OWN, MODE, WRITER, READERS, SPARE, SPACED = 11, 'write', ':write', KEYS[4], ARGV[10] == '1', true
