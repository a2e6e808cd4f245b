-- extend: sets the TTL of a lock that the token holds. Repeating it is harmless.
-- KEYS[1] lock  string "<fence>:<token>"
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- returns {"ok", fence} | {"absent"} | {"foreign"}
local value = redis.call('GET', KEYS[1])
if not value then return {'absent'} end
local fence, owner = string.match(value, '^(%d+):(.*)$')
if owner ~= ARGV[1] then return {'foreign'} end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return {'ok', fence}
