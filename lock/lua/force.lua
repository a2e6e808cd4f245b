-- force: frees a lock whoever holds it; it goes to the next in line.
-- KEYS and ARGV are those of own; no token
-- returns {"ok"} | {"absent"}
local freed = redis.call('DEL', l.lock) == 1
pass(l)
return {freed and 'ok' or 'absent'}
