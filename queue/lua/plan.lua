-- plan: the part of settle that decides what becomes of each task, and changes nothing.
local lost, ended, gone, clear, keys = {}, {}, {}, {}, {}
local entries, records, notes, died = {}, {}, {}, {}
local kept, results, ends, stale = {}, {}, {}, {}
local count = {ack = 0}
local function add(list, a, b) list[#list + 1], list[#list + 2] = a, b end

local other = {} -- position of what is not acknowledged -> that of its arguments
for i = n + 2, #ARGV - 1, 4 do other[tonumber(ARGV[i])] = i end
local there = held(leased, n)
for i = 1, n do
  local member, arg = ARGV[i + 1], other[i]
  if not there[member] then
    lost[#lost + 1] = i
  elseif not arg and not marked then -- acknowledged, as below, in less time
    ended[#ended + 1], there[member] = member, false -- a lease ends once, also within one batch
    gone[#gone + 1] = string.sub(member, string.find(member, ':', string.find(member, ':', 1, true) + 1, true) + 1)
    count.ack = count.ack + 1
  else
    ended[#ended + 1], there[member] = member, false
    local action, at, note = 'ack', 0, ''
    if arg then action, at, note = ARGV[arg + 1], ARGV[arg + 2], ARGV[arg + 3] end
    local fence, was, id, key = parts(member)
    if key then add(keys, key, holding(fence, was, id)) end

    -- If the task is over, or this run was to be its last, a run that was done stands,
    -- and of any other nothing is left.
    local over = arg and cancels and cancelled(cancel, fence, id)
    local score, record
    if replaced then
      local waiting = redis.call('HGET', following, id) or ''
      score, record = string.match(waiting, '^(%d+):(.*)$')
      over = over or waiting == '-'
    end
    if score and #score > 16 then score = nil end -- no time of ours
    local tick = action == 'repeat' -- whose end is told, also if the task was changed meanwhile
    local result = tick and string.match(note, '^=(.*)$')
    if over and result then
      action, at, note = 'ack', 0, result
    elseif over and action ~= 'ack' then
      action, note = 'cancelled', ''
    end
    count[action] = (count[action] or 0) + 1
    if action ~= 'release' or score then clear[#clear + 1] = id end
    if score then
      add(entries, score, id)
      add(records, id, record)
      stale[#stale + 1] = id
    elseif action == 'ack' and tonumber(at) > 0 then
      add(kept, us(now + at), id)
      if note ~= '' then add(results, id, note) end
    elseif action == 'ack' or action == 'drop' or action == 'cancelled' then
      gone[#gone + 1] = id
    elseif action == 'bury' then
      add(died, us(now), id)
      add(notes, id, note)
    else
      add(entries, us(when(at, now)), id)
      if tick then stale[#stale + 1] = id end
      if not result and note ~= '' then add(notes, id, note) end
    end
    if traced.waited and (tick or not score) and action ~= 'retry' and action ~= 'release' then
      add(ends, id, result and 'ack' or action == 'cancelled' and 'cancel' or action)
      ends[#ends + 1] = result or note
    end
  end
end
if #ended == 0 then return lost end

