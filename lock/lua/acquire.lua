-- acquire: takes a lock, claims one that was granted, or tells how long another
-- holds it at most; then the token may stand in line. The same token asking
-- again gets the same fence and a fresh TTL, never a shorter one: a request that
-- was late on the network must not cut an extension down.
-- KEYS and ARGV[1] to ARGV[9] are those of own
-- ARGV[10] TTL of the lock, ms
-- ARGV[11] TTL for a lock found without one, ms
-- ARGV[12] how long the token's instance counts as alive from now, ms; 0: it does
--          not stand in line
-- returns {"ok", fence} | {"held", ms left, holder's value, "adopted" or ""}
local ttl, adopt, alive_for = ARGV[10], ARGV[11], ARGV[12]

local function stand()
  if alive_for == '0' then return end
  local now = micros()
  if not redis.call('ZSCORE', l.line, token) then
    local last = redis.call('ZRANGE', l.line, 0, 0, 'REV', 'WITHSCORES')[2]
    redis.call('ZADD', l.line, us(math.max(now, (tonumber(last) or 0) + 1)), token)
  end
  now = math.floor(now / 1000)
  redis.call('ZADD', l.alive, us(now + alive_for), instance(token))
  redis.call('ZREMRANGEBYSCORE', l.alive, '-inf', us(now))
  redis.call('PEXPIRE', l.line, 2 * alive_for)
  redis.call('PEXPIRE', l.alive, 2 * alive_for)
end

local value = redis.call('GET', l.lock)
if not value then
  local waiter = l.unfair ~= '1' and head(l)
  if waiter == token then redis.call('ZREM', l.line, token) end
  if not waiter or waiter == token then return {'ok', give(l, token, ttl)} end
  stand()
  pass(l)
  return {'held', tonumber(l.claim), redis.call('GET', l.lock), ''}
end

local left, adopted = redis.call('PTTL', l.lock), ''
if owner(value) == token then
  if left < tonumber(ttl) then redis.call('PEXPIRE', l.lock, ttl) end
  return {'ok', (string.match(value, '^%d+'))}
end
stand()
if left == -1 then
  redis.call('PEXPIRE', l.lock, adopt)
  left, adopted = tonumber(adopt), 'adopted'
end
return {'held', left, value, adopted}
