-- acquire: takes a lock, or tells how long another still holds it. The same
-- token asking again gets the same fence and a fresh TTL, never a shorter one:
-- a request that was late on the network must not cut an extension down.
-- KEYS[1] lock   string "<fence>:<token>"
-- KEYS[2] fence  string, the last fence given
-- ARGV[1] token
-- ARGV[2] TTL of the lock, ms
-- ARGV[3] TTL for a lock found without one, ms
-- ARGV[4] TTL of the fence, ms; 0 keeps it for ever
-- returns {"ok", fence} | {"held", ms left, "adopted" or ""}
local lock, fence = KEYS[1], KEYS[2]
local token, ttl, adopt, keep = ARGV[1], ARGV[2], ARGV[3], ARGV[4]

local value = redis.call('GET', lock)
if value then
  local had, owner = string.match(value, '^(%d+):(.*)$')
  local left = redis.call('PTTL', lock)
  if owner == token then
    if left < tonumber(ttl) then redis.call('PEXPIRE', lock, ttl) end
    return {'ok', had}
  end
  if left == -1 then
    redis.call('PEXPIRE', lock, adopt)
    return {'held', tonumber(adopt), 'adopted'}
  end
  return {'held', left, ''}
end

local time = redis.call('TIME')
local last = tonumber(redis.call('GET', fence)) or 0
local mine = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
redis.call('SET', fence, mine)
if keep ~= '0' then redis.call('PEXPIRE', fence, keep) end
redis.call('SET', lock, mine .. ':' .. token, 'PX', ttl)
return {'ok', mine}
