-- raise: gives a lock that the token holds the fence that a quorum agrees on, and
-- which later ones exceed. Its own may have been higher: that of a node which was
-- late for the election. Repeating it is harmless.
-- KEYS[1] lock   string "<fence>:<token>"
-- KEYS[2] fence  string, the last fence given
-- ARGV[1] token
-- ARGV[2] fence
-- ARGV[3] TTL of the fence, ms; 0 keeps it for ever
-- returns {"ok"} | {"absent"} | {"foreign"}
local value = redis.call('GET', KEYS[1])
if not value then return {'absent'} end
local had, owner = string.match(value, '^(%d+):(.*)$')
if owner ~= ARGV[1] then return {'foreign'} end
if ARGV[2] ~= had then
  redis.call('SET', KEYS[1], ARGV[2] .. ':' .. owner, 'KEEPTTL')
end
if tonumber(ARGV[2]) > (tonumber(redis.call('GET', KEYS[2])) or 0) then
  redis.call('SET', KEYS[2], ARGV[2])
  if ARGV[3] ~= '0' then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
end
return {'ok'}
