-- fence: the beginning of a script that refuses the holder of an older lease.
-- Fences are compared digit by digit: as Lua numbers the large ones would round.
-- KEYS[1] fence  string, the highest fence seen, as given
-- ARGV[1] fence of the caller
-- returns {"stale", highest} if the caller's is lower; else stores it, goes on
do
  local seen, mine = redis.call('GET', KEYS[1]), ARGV[1] or ''
  local function padded(digits)
    if #digits > 20 or not string.find(digits, '^%d+$') then return nil end
    return string.rep('0', 20 - #digits) .. digits
  end
  local new, old = padded(mine), padded(seen or '0')
  if not new then return redis.error_reply('ERR ARGV[1] is no fence') end
  if not old then return redis.error_reply('ERR KEYS[1] holds no fence') end
  if new < old then return {'stale', seen} end
  redis.call('SET', KEYS[1], mine)
end
