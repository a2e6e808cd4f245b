-- finish: the part of settle that decides what becomes of a task.

local lost, ended, gone, clear, keys = {}, {}, {}, {}, {}
local entries, records, notes, died = {}, {}, {}, {}
local kept, results, ends, stale = {}, {}, {}, {}
local count = {ack = 0, drop = 0, retry = 0, release = 0, bury = 0, ['repeat'] = 0, cancelled = 0}
local function add(list, a, b) list[#list + 1], list[#list + 2] = a, b end

-- finish plans what becomes of a task whose lease is held. If it is over, or this run
-- was to be its last, a run that was done stands, and of any other nothing is left.
local function finish(id, action, at, note, over)
  local score, record
  if replaced then
    local waiting = redis.call('HGET', following, id) or ''
    score, record = string.match(waiting, '^(%d+):(.*)$')
    over = over or waiting == '-'
  end
  if score and #score > 16 then score = nil end -- no time of ours
  local result = action == 'repeat' and string.match(note, '^=(.*)$')
  if over and result then
    action, at, note = 'ack', 0, result
  elseif over and action ~= 'ack' then
    action, note = 'cancelled', ''
  end
  count[action] = count[action] + 1
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
    if action == 'repeat' then stale[#stale + 1] = id end
    if not result and note ~= '' then add(notes, id, note) end
  end
  if traced.waited and not score and action ~= 'retry' and action ~= 'release' then
    add(ends, id, result and 'ack' or action == 'cancelled' and 'cancel' or action)
    ends[#ends + 1] = result or note
  end
end

