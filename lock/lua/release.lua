-- release: frees a lock that the token holds, and takes the token out of the
-- line. A free lock goes to the next in line.
-- KEYS and ARGV are those of line
-- returns {"ok"} | {"absent"} | {"foreign"}
local value = redis.call('GET', lock)
if value and owner(value) == token then
  redis.call('DEL', lock)
  pass()
  return {'ok'}
end
redis.call('ZREM', line, token)
if value then return {'foreign'} end
pass()
return {'absent'}
