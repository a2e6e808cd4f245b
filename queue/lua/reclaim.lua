-- reclaim: the part of pop that ends leases that ran out; k are pop's keys.

-- bury puts ids into the dead letter, with empty bytes if they have no record.
local function bury(k, ids, now)
  for _, id in ipairs(ids) do
    redis.call('ZADD', k.dead, us(now), id)
    redis.call('HSETNX', k.task, id, '')
    redis.pcall('HINCRBY', k.stat, 'buried', 1)
    tell(k.traced, {id, 'crash', ''}, now)
  end
end

-- replace puts a task's replacement in its place, and reports whether it had one.
local function replace(k, id)
  local score, record = string.match(redis.call('HGET', k.next, id) or '', '^(%d+):(.*)$')
  if not score or #score > 16 then return false end
  for _, key in ipairs({k.next, k.fail, k.crash, k.cancel}) do redis.call('HDEL', key, id) end
  if k.traced.reported then redis.call('HDEL', k.traced.progress, id) end
  redis.call('HSET', k.task, id, record)
  redis.call('ZADD', k.due, score, id)
  return true
end

-- cut ends a run that was cancelled, or was to be the last, and that nobody goes on
-- with, and reports whether it was: its replacement takes its place, or nothing.
local function cut(k, fence, id, now)
  if redis.call('HGET', k.next, id) ~= '-' and not cancelled(k.cancel, fence, id) then return false end
  if not replace(k, id) then
    for _, key in ipairs({k.task, k.next, k.fail, k.crash, k.cancel, k.traced.progress}) do redis.call('HDEL', key, id) end
    tell(k.traced, {id, 'cancel', ''}, now)
  end
  redis.pcall('HINCRBY', k.stat, 'cancelled', 1)
  return true
end

-- back makes a task due again whose lease ran out: as it was, or as its
-- replacement, or not at all if it was cancelled or that was one crash too many.
local function back(k, fence, id, was, limit, now)
  if cut(k, fence, id, now) or replace(k, id) then return end
  local crashes = (tonumber(redis.call('HGET', k.crash, id)) or 0) + 1 -- HINCRBY could fail, half-way
  redis.call('HSET', k.crash, id, us(crashes))
  if crashes >= limit then
    bury(k, {id}, now)
  else
    redis.call('ZADD', k.due, was, id)
  end
end

-- reclaim ends leases that ran out, a pop's share at most, and returns how many. What
-- is no member of ours is removed.
local share = 100
local function reclaim(k, locks, limit, now)
  local over = redis.call('ZRANGE', k.leased, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, share)
  if #over == 0 then return 0 end
  redis.call('ZREM', k.leased, unpack(over))
  for _, member in ipairs(over) do
    local fence, was, id, key = parts(member)
    if id and #was < 17 then back(k, fence, id, was, limit, now) end
    if key then locks().free(key, holding(fence, was, id)) end
  end
  redis.pcall('HINCRBY', k.stat, 'reclaimed', #over)
  return #over
end
