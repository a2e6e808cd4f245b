-- waiting: the part of cancel and reschedule about a task that waits to be leased.

-- takeOut removes it from due or, if it has a score there, from parked and turns.
local function takeOut(due, parked, turns, id, key, score)
  redis.call('ZREM', score and parked or due, id)
  if score and key then redis.call('ZREM', turns, turn(key, score, id)) end
end

