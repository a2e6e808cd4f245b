-- extend: lengthens the TTL of a lock that the token holds. Repeating it is
-- harmless, and so is one that is late: it never shortens the TTL.
-- KEYS[1] lock  string "<fence>:<token>"
-- ARGV[1] token
-- ARGV[2] TTL, ms
-- returns {"ok", fence} | {"absent"} | {"foreign"}
local value = redis.call('GET', KEYS[1])
if not value then return {'absent'} end
local fence, owner = string.match(value, '^(%d+):(.*)$')
if owner ~= ARGV[1] then return {'foreign'} end
if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[2]) then redis.call('PEXPIRE', KEYS[1], ARGV[2]) end
return {'ok', fence}
