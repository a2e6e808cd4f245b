-- list: shows a page of the tasks in one state, by time. It begins with clock and
-- key.
-- KEYS[1] due, parked, leased, dead or done  zset, see pop
-- KEYS[2] task   hash  id -> record
-- KEYS[3] fail   hash  id -> <failures>:<error>
-- KEYS[4] crash  hash  id -> crashes
-- KEYS[5] result, KEYS[6] progress  hashes  id -> JSON
-- ARGV[1] first position, from 0
-- ARGV[2] last position
-- ARGV[3] the state: due, parked, leased, dead, done
-- returns {{member, score, ...}, records, failures, crashes, results, progress}
local over = ARGV[3] == 'done' and redis.call('ZCOUNT', KEYS[1], '-inf', us(clock())) or 0
local page = redis.call('ZRANGE', KEYS[1], us(ARGV[1] + over), us(ARGV[2] + over), 'WITHSCORES')
if #page == 0 then return {page, {}, {}, {}, {}, {}} end
local ids = {}
for i = 1, #page, 2 do
  local id = page[i]
  if ARGV[3] == 'leased' then id = select(3, parts(id)) or id end
  ids[#ids + 1] = id
  page[i + 1] = any(page[i + 1])
end
local answer = {page}
for i = 2, 6 do answer[i] = redis.call('HMGET', KEYS[i], unpack(ids)) end
return answer
