-- head: the part of pop that reads the due set. A head is {id, due, ...}.

-- names are the ids of a head.
local function names(head)
  local ids = {}
  for i = 1, #head / 2 do ids[i] = head[2 * i - 1] end
  return ids
end

-- dueHead lists the head of the due set. To print a score costs Redis more than all
-- else in it, so neighbours that are due together, as those that were enqueued
-- together are, have theirs printed once.
local function dueHead(due, now, most)
  if most <= 4 then return redis.call('ZRANGE', due, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, most, 'WITHSCORES') end
  local ids = redis.call('ZRANGE', due, '-inf', us(now), 'BYSCORE', 'LIMIT', 0, most)
  local head, i, scores = {}, 1, 0
  while i <= #ids and scores < 8 do
    local score = redis.call('ZSCORE', due, ids[i])
    local last = i + redis.call('ZCOUNT', due, score, score) - 1
    for j = i, math.min(last, #ids) do head[2 * j - 1], head[2 * j] = ids[j], score end
    i, scores = last + 1, scores + 1
  end
  if i > #ids then return head end
  for _, part in ipairs(redis.call('ZRANGE', due, i - 1, #ids - 1, 'WITHSCORES')) do head[#head + 1] = part end
  return head
end

