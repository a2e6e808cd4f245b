-- park: the part of pop that keeps tasks of one lock key from running at once. A
-- task that is due and whose key is taken is parked until it is its turn.
-- k are pop's keys; locks are of package lock, adopt its TTL for a lock without one.

-- park puts by a task that is in no set, to be looked at when its key may be free.
local function park(k, key, id, due, look)
  redis.call('ZADD', k.parked, due, id)
  redis.call('ZADD', k.turns, 0, turn(key, due, id))
  redis.call('ZADD', k.blocked, look, key)
end

-- turnsOf lists the first turns of a key, or of those before one of them.
local function turnsOf(k, key, before, most)
  return redis.call('ZRANGE', k.turns, '[' .. key .. '\n', '(' .. (before or key .. '\11'), 'BYLEX', 'LIMIT', 0, most)
end

-- unpark makes due the first of those that wait for a key, and reports whether
-- there are more.
local function unpark(k, key)
  local turns = turnsOf(k, key, nil, 2)
  if not turns[1] then return false end
  local id = string.sub(turns[1], #key + 19)
  redis.call('ZREM', k.turns, turns[1])
  local due = redis.call('ZSCORE', k.parked, id)
  if due then
    redis.call('ZREM', k.parked, id)
    redis.call('ZADD', k.due, due, id)
  end
  return turns[2] ~= nil
end

-- unclaimed is for how many ms a task may be due whose turn it is, until the key is
-- looked at again: it is popped in due order. If it is cancelled or moved, that is
-- told.
local unclaimed = 60000

-- look asks of up to 200 keys whether they are free by now.
local function look(k, locks, adopt, now)
  for _, key in ipairs(redis.call('ZRANGE', k.blocked, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, 200)) do
    redis.call('ZREM', k.blocked, key) -- first: it may run at the memory limit
    local left = locks().blocked(key, '', adopt)
    if left or unpark(k, key) then
      redis.call('ZADD', k.blocked, us(now + 1000 * (left or unclaimed)), key)
    end
  end
end

