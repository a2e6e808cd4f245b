-- soon: the part of pop that tells when to come again.

-- What tasks have left behind, see traces; some is dropped whenever anyone pops.
local traced = traceKeys(19, KEYS[4])
local more = not plain and forget(traces(traced), now, 100)

-- wait is how long until the first task is due and may be leased, the first lease
-- ends, or a lock key may be free; 100 ms at most if there is more to drop.
local function wait(starts, lapses)
  local soon = math.min(allowed(starts), lapses, plain and math.huge or earliest(KEYS[17]))
  if more then soon = math.min(soon, now + 100000) end
  if soon == math.huge then return -1 end
  return math.max(soon - now, 0)
end
local first = wait(starts, lapses)
if first ~= 0 and reached then return {'ok', us(now), first} end

