-- What a read-write lock is for those who write: stands in front of each of its scripts. (The words are explained in fair_kind.lua.)
local OWN, MODE, WRITER, READERS, SPARE, SPACED = 11, 'write', ':write', KEYS[4], ARGV[10] == '1', true
