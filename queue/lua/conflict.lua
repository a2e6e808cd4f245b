-- conflict: the part of enqueue for an id that is in the queue; k are enqueue's
-- keys, record is the new one and known the one there. It returns the state, the due
-- time there (or that of the replacement) or '', whether the new task is to win, when
-- it is due then, and of one that then makes room the lock key and, if it is parked,
-- its turn.
local function conflict(k, id, score, mode, record, known)
  local parked = redis.call('ZSCORE', k.parked, id)
  local old = redis.call('ZSCORE', k.due, id) or parked
  local died, waiting = redis.call('ZSCORE', k.dead, id), redis.call('HGET', k.next, id)
  local kept = redis.call('ZSCORE', k.done, id)
  for _, key in ipairs({k.fail, k.crash, k.result, k.progress}) do redis.call('HLEN', key) end
  if kept and not old then return tonumber(kept) > k.now and 'done' or 'missing', '', true, score end
  local latest = waiting and string.match(waiting, '^%d+:(.*)$') or known
  local changed = mode == 'changed' and (record ~= latest or waiting == '-')
  if died and not old then return 'dead', '', changed or mode == 'replace' or mode == 'earliest', score end
  local state, overdue = old and 'due' or 'leased', old and tonumber(old) <= k.now
  if mode == 'changed' and state == 'leased' and not waiting then -- cancelled, it would be gone
    changed = changed or redis.call('HEXISTS', k.cancel, id) == 1
  end
  old = old or string.match(waiting or '', '^(%d+):')
  if old then old = any(old) end
  if changed and state == 'due' then -- a tick that is overdue, or to be retried, is not lost
    local failed = string.find(redis.call('HGET', k.fail, id) or '0', '^[1-9]')
    if overdue or failed then score = old end
  end
  local wins = changed or mode == 'replace' or mode == 'earliest' and (not old or tonumber(score) < tonumber(old))
  local key = wins and state == 'due' and keyOf(known) or nil
  return state, old or '', wins, score, key, key and parked and turn(key, parked, id)
end
