-- plan: the part of settle that goes through the deliveries, and changes nothing.
local other = {} -- position of what is not acknowledged -> that of its arguments
for i = n + 2, #ARGV - 3, 4 do other[tonumber(ARGV[i])] = i end
local there = held(leased, n)
for i = 1, n do
  local member = ARGV[i + 1]
  if not there[member] then
    lost[#lost + 1] = i
  else
    ended[#ended + 1], there[member] = member, false -- a lease ends once, also within one batch
    local at = other[i]
    if at then
      local fence, was, id, key = parts(member)
      local action = ARGV[at + 1]
      if key then add(keys, key, holding(fence, was, id)) end
      finish(id, action, ARGV[at + 2], ARGV[at + 3], cancels and cancelled(cancel, fence, id))
    else
      local id = string.sub(member, string.find(member, ':', string.find(member, ':', 1, true) + 1, true) + 1)
      if marked then
        finish(id, 'ack', 0, '')
      else
        gone[#gone + 1] = id -- as finish would, in less time
        count.ack = count.ack + 1
      end
    end
  end
end
if #ended == 0 then return lost end

