-- list: shows a page of the tasks in one state, by time. It begins with clock and
-- key.
-- KEYS[1] due, parked, leased or dead  zset, see pop
-- KEYS[2] task   hash  id -> record
-- KEYS[3] fail   hash  id -> <failures>:<error>
-- KEYS[4] crash  hash  id -> crashes
-- ARGV[1] first position, from 0
-- ARGV[2] last position
-- ARGV[3] the state: due, parked, leased, dead
-- returns {{member, score, ...}, records, failures, crashes}
local page = redis.call('ZRANGE', KEYS[1], ARGV[1], ARGV[2], 'WITHSCORES')
if #page == 0 then return {page, {}, {}, {}} end
local ids = {}
for i = 1, #page, 2 do
  local id = page[i]
  if ARGV[3] == 'leased' then id = select(3, parts(id)) or id end
  ids[#ids + 1] = id
  page[i + 1] = any(page[i + 1])
end
local answer = {page}
for i = 2, 4 do answer[i] = redis.call('HMGET', KEYS[i], unpack(ids)) end
return answer
