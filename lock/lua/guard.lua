-- guard: the beginning of a script that is a critical section under a lock.
-- KEYS[1] lock  string "<fence>:<token>"
-- ARGV[1] token of the caller's lease, or ''
-- ARGV[2] TTL for a lock found without one, ms
-- returns {"locked", ms left} if another holds the lock; else goes on
do
  local value = redis.call('GET', KEYS[1])
  if value and string.match(value, '^%d+:(.+)$') ~= ARGV[1] then
    local left = redis.call('PTTL', KEYS[1])
    if left == -1 then
      redis.call('PEXPIRE', KEYS[1], ARGV[2])
      left = tonumber(ARGV[2])
    end
    return {'locked', left}
  end
end
