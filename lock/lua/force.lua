-- force: frees a lock whoever holds it; it goes to the next in line.
-- KEYS and ARGV are those of line; no token
-- returns {"ok"} | {"absent"}
local freed = redis.call('DEL', lock) == 1
pass()
return {freed and 'ok' or 'absent'}
