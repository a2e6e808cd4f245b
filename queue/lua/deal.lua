-- deal: the part of pop that decides what may be leased: the tasks of a lost pop, or
-- else some of those that are due.
local fresh, token, may, putBy = #head == 0, lastFence, #head / 2, 0
if fresh and over < share then -- else the next pop goes on: what was leased goes before what was parked
  if not plain then look(k, lockKeys, adopt, now) end
  may = room(most)
end

-- A pop of one has read its task already, if nothing was written since.
local known = most == 1 and starts <= now and reached and plain and front

-- A task that one more crash would bury is on trial: it is run while no other such
-- is, until it has settled or a third of its lease is over. Else the task that kills
-- workers would take those that run beside it to the dead letter.
local busy = trial and tonumber(trialEnd) > now and redis.call('ZSCORE', k.leased, trial)

