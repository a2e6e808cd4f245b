-- held: the part of settle that finds which members are leased. It returns a
-- table that has those, and only those, of the n members in ARGV from 2 on.
-- Printing a score is what costs Redis most in a batch. Tasks that were popped
-- or extended together have one, and a range of names needs none printed.
local function held(leased, n)
  local there, i, scores = {}, 1, 0
  while i <= n and n >= 50 and scores < 8 do
    local member = ARGV[i + 1]
    if there[member] == nil then
      local stop = redis.call('ZSCORE', leased, member)
      scores = scores + 1
      there[member] = stop and true
      local together = stop and redis.call('ZRANGE', leased, stop, stop, 'BYSCORE', 'LIMIT', 0, 2 * n) or {}
      for _, other in ipairs(together) do there[other] = true end
    end
    i = i + 1
  end
  if i <= n then
    for j, stop in ipairs(redis.call('ZMSCORE', leased, unpack(ARGV, i + 1, n + 1))) do
      there[ARGV[i + j]] = stop and true
    end
  end
  return there
end
