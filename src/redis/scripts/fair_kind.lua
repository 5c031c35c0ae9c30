-- What a fair lock is: stands in front of each of its scripts.
-- OWN: at which of ARGV the script's own begin.  MODE: what the lock's field `mode` says.  WRITER: what the holder's field ends in, behind its id.
-- READERS: the key of those that wait to read.  SPARE: whether a lock that becomes free is to be left to strangers.  SPACED: whether one token more
-- is used up, which is then for readers.
local OWN, MODE, WRITER, READERS, SPARE, SPACED = 8, 'fair', '', nil, false, false
