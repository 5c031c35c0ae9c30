-- The constants of a fair lock. OWN: index in ARGV of the script's own first argument. MODE: value of the
-- lock's field `mode`. WRITER: suffix of the holder's field. READERS: key of the waiting readers. SPARE: true
-- to leave a freed lock to other clients. SPACED: true to use up one more token, for readers.
local OWN, MODE, WRITER, READERS, SPARE, SPACED = 7, 'fair', '', nil, false, false
