-- acquire: takes a lock, claims one that was granted, or tells how long another
-- holds it at most; then the token may stand in line. The same token asking
-- again gets the same fence and a fresh TTL, never a shorter one: a request that
-- was late on the network must not cut an extension down.
-- KEYS and ARGV[1] to ARGV[6] are those of line
-- ARGV[7] TTL of the lock, ms
-- ARGV[8] TTL for a lock found without one, ms
-- ARGV[9] how long the token's instance counts as alive from now, ms; 0: it does
--         not stand in line
-- returns {"ok", fence} | {"held", ms left, holder's value, "adopted" or ""}
local ttl, adopt, alive_for = ARGV[7], ARGV[8], ARGV[9]

local function stand()
  if alive_for == '0' then return end
  local now = micros()
  if not redis.call('ZSCORE', line, token) then
    local last = redis.call('ZRANGE', line, 0, 0, 'REV', 'WITHSCORES')[2]
    redis.call('ZADD', line, string.format('%.0f', math.max(now, (tonumber(last) or 0) + 1)), token)
  end
  now = math.floor(now / 1000)
  redis.call('ZADD', alive, string.format('%.0f', now + alive_for), instance(token))
  redis.call('ZREMRANGEBYSCORE', alive, '-inf', string.format('%.0f', now))
  redis.call('PEXPIRE', line, 2 * alive_for)
  redis.call('PEXPIRE', alive, 2 * alive_for)
end

local value = redis.call('GET', lock)
if not value then
  local waiter = unfair ~= '1' and head()
  if waiter == token then redis.call('ZREM', line, token) end
  if not waiter or waiter == token then return {'ok', give(token, ttl)} end
  stand()
  pass()
  return {'held', tonumber(claim), redis.call('GET', lock), ''}
end

local left, adopted = redis.call('PTTL', lock), ''
if owner(value) == token then
  if left < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
  return {'ok', (string.match(value, '^%d+'))}
end
stand()
if left == -1 then
  redis.call('PEXPIRE', lock, adopt)
  left, adopted = tonumber(adopt), 'adopted'
end
return {'held', left, value, adopted}
