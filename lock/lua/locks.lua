-- locks: the rest of a function that a script of another package calls with the
-- terms of a locker; line comes first. Its holders are values as they stand in a
-- lock, "<fence>:<token>", and do not stand in line.
local l = {fence_ttl = '0', unfair = ''}
local prefix
prefix, l.fence, l.claim, l.channel, l.publish, l.parked, l.wake =
  string.match(terms, '^(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.*)$')

local function on(name)
  l.name, l.lock, l.line, l.alive = name, prefix .. name, prefix .. '{line}:' .. name, prefix .. '{alive}:' .. name
end

-- holder is the value of a lock; of a key of another type, which is never free,
-- it is ''.
local function holder()
  local value = redis.pcall('GET', l.lock)
  if type(value) == 'table' then return '' end
  return value
end

return {
  -- blocked is for how many ms at most another holds a lock, or nil if mine may
  -- have it. A free one for which somebody stands in line goes to that one.
  blocked = function(name, mine, adopt)
    on(name)
    local value = holder()
    if value == '' then return tonumber(adopt) end
    if value == mine then return nil end
    if not value then
      local _, granted = pcall(pass, l)
      return granted and tonumber(l.claim) or nil
    end
    local left = redis.call('PTTL', l.lock)
    if left == -1 then
      redis.call('PEXPIRE', l.lock, adopt)
      left = tonumber(adopt)
    end
    return math.max(left, 1)
  end,

  -- hold makes mine the holder, which is to be asked of blocked first.
  hold = function(name, mine, ttl)
    on(name)
    redis.call('SET', l.lock, mine, 'PX', ttl)
  end,

  -- keep lengthens the time for which mine holds a lock, and takes one again that
  -- was lost and is free. It reports false if another has it.
  keep = function(name, mine, ttl)
    on(name)
    local value = holder()
    if value == mine then return redis.call('PEXPIRE', l.lock, ttl) == 1 end -- which needs no memory
    return not value and redis.pcall('SET', l.lock, mine, 'PX', ttl).ok ~= nil
  end,

  -- free lets a lock go that mine holds. What is free goes to the next.
  free = function(name, mine)
    on(name)
    local value = holder()
    if value and value ~= mine then return end
    redis.call('DEL', l.lock)
    pcall(pass, l)
  end,
}
