-- conflict: the part of enqueue for an id that is in the queue; k are enqueue's
-- keys. It returns the state, the due time there (or that of the replacement)
-- or '', whether the new task is to win, and of one that then makes room the lock
-- key and, if it is parked, its turn.
local function conflict(k, id, score, mode)
  local parked = redis.call('ZSCORE', k.parked, id)
  local old = redis.call('ZSCORE', k.due, id) or parked
  local died, waiting = redis.call('ZSCORE', k.dead, id), redis.call('HGET', k.next, id)
  local kept = redis.call('ZSCORE', k.done, id)
  for _, key in ipairs({k.fail, k.crash, k.result, k.progress}) do redis.call('HLEN', key) end
  if kept and not old then return tonumber(kept) > k.now and 'done' or 'missing', '', true end
  if died and not old then return 'dead', '', mode ~= 'keep' end
  local state = old and 'due' or 'leased'
  old = old or string.match(waiting or '', '^(%d+):')
  if old then old = any(old) end
  local wins = mode == 'replace' or mode == 'earliest' and (not old or tonumber(score) < tonumber(old))
  local key = wins and state == 'due' and keyOf(redis.call('HGET', k.task, id)) or nil
  return state, old or '', wins, key, key and parked and turn(key, parked, id)
end
