-- conflict: the part of enqueue for an id that is in the queue; k are enqueue's
-- keys, record is the new one and known the one there. It returns the state, the
-- due time there (or that of the replacement) or '', whether the new task is to
-- win, and when it is due then.
local function conflict(k, id, score, mode, now, record, known)
  local old = redis.call('ZSCORE', k.due, id)
  local died, waiting = redis.call('ZSCORE', k.dead, id), redis.call('HGET', k.next, id)
  for _, key in ipairs({k.fail, k.crash}) do redis.call('HLEN', key) end
  local latest = waiting and string.match(waiting, '^%d+:(.*)$') or known
  local changed = mode == 'changed' and (waiting == '-' or record ~= latest)
  if died and not old then return 'dead', '', changed or mode == 'replace' or mode == 'earliest', score end
  local state, overdue = old and 'due' or 'leased', old and tonumber(old) <= now
  old = old or string.match(waiting or '', '^(%d+):')
  if old then old = any(old) end
  if changed and state == 'due' then -- a tick that is overdue, or to be retried, is not lost
    local failed = string.find(redis.call('HGET', k.fail, id) or '0', '^[1-9]')
    if overdue or failed then score = old end
  end
  local wins = changed or mode == 'replace' or mode == 'earliest' and (not old or tonumber(score) < tonumber(old))
  return state, old or '', wins, score
end
