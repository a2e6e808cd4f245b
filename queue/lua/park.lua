-- park: the part of pop that keeps tasks of one lock key from running at once. A
-- task that is due and whose key is taken is parked until it is its turn.
-- k are pop's keys; locks are of package lock, adopt its TTL for a lock without one.

-- park puts by a task that is in no set, to be looked at when its key may be free.
local function park(k, key, id, due, look)
  redis.call('ZADD', k.parked, due, id)
  redis.call('ZADD', k.turns, 0, turn(key, due, id))
  redis.call('ZADD', k.blocked, look, key)
end

-- unpark makes due the first of those that wait for a key, and reports whether
-- there are any.
local function unpark(k, key)
  local first = redis.call('ZRANGE', k.turns, '[' .. key .. '\n', '(' .. key .. '\11', 'BYLEX', 'LIMIT', 0, 1)[1]
  if not first then return false end
  local id = string.sub(first, #key + 19)
  redis.call('ZREM', k.turns, first)
  local due = redis.call('ZSCORE', k.parked, id)
  if due then
    redis.call('ZREM', k.parked, id)
    redis.call('ZADD', k.due, due, id)
  end
  return true
end

-- look asks of up to 100 keys whether they are free by now. The task whose turn it
-- is may not be popped at once, so a key is looked at again in a second, or when
-- the lease has ended that the task is given.
local function look(k, locks, adopt, now)
  for _, key in ipairs(redis.call('ZRANGE', k.blocked, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, 100)) do
    redis.call('ZREM', k.blocked, key) -- first: it may run at the memory limit
    local left = locks().blocked(key, '', adopt)
    if left or unpark(k, key) then
      redis.call('ZADD', k.blocked, us(now + 1000 * (left or 1000)), key)
    end
  end
end

