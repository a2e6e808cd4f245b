-- release: frees a lock that the token holds.
-- KEYS[1] lock  string "<fence>:<token>"
-- ARGV[1] token
-- returns {"ok"} | {"absent"} | {"foreign"}
local value = redis.call('GET', KEYS[1])
if not value then return {'absent'} end
if string.match(value, '^%d+:(.*)$') ~= ARGV[1] then return {'foreign'} end
redis.call('DEL', KEYS[1])
return {'ok'}
