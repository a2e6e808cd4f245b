-- release: frees a lock that the token holds, and takes the token out of the
-- line. A free lock goes to the next in line.
-- KEYS and ARGV are those of own
-- returns {"ok"} | {"absent"} | {"foreign"}
local value = redis.call('GET', l.lock)
if value and owner(value) == token then
  redis.call('DEL', l.lock)
  pass(l)
  return {'ok'}
end
redis.call('ZREM', l.line, token)
if value then return {'foreign'} end
pass(l)
return {'absent'}
