-- locks: the rest of a function that a script of another package calls with the
-- terms of a locker; line comes first. Its holders are values as they stand in a
-- lock, "<fence>:<token>", and do not stand in line.
local l, prefix = {fence_ttl = '0'}, nil
prefix, l.fence, l.claim, l.channel, l.publish, l.unfair, l.parked, l.wake =
  string.match(terms, '^(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.-)\n(.*)$')

-- holder is the value of a lock, false if it is free. A key of another type is held
-- by somebody: true.
local function holder(name)
  l.name, l.lock, l.line, l.alive = name, prefix .. name, prefix .. '{line}:' .. name, prefix .. '{alive}:' .. name
  local value = redis.pcall('GET', l.lock)
  return type(value) == 'table' or value
end

return {
  -- blocked is for how many ms at most another holds a lock, or nil if mine may
  -- have it. A free one for which somebody stands in line goes to that one.
  blocked = function(name, mine, adopt)
    local value = holder(name)
    if value == mine then return nil end
    if not value then
      local fine, waiter = pcall(grant, l)
      return fine and waiter and tonumber(l.claim) or nil
    end
    local left = redis.call('PTTL', l.lock)
    if left == -1 then
      if value ~= true then redis.call('PEXPIRE', l.lock, adopt) end
      left = tonumber(adopt)
    end
    return math.max(left, 1)
  end,

  -- hold makes mine the holder, which is to be asked of blocked first.
  hold = function(name, mine, ttl)
    holder(name)
    redis.call('SET', l.lock, mine, 'PX', ttl)
  end,

  -- holds reports whether mine does.
  holds = function(name, mine) return holder(name) == mine end,

  -- keep lengthens the time for which mine holds a lock, and takes one again that
  -- was lost and is free. It reports false if another has it.
  keep = function(name, mine, ttl)
    local value = holder(name)
    if value == mine then return redis.call('PEXPIRE', l.lock, ttl) == 1 end -- which needs no memory
    if value then return false end
    redis.call('DEL', l.lock) -- nothing; but a script that has written is not refused memory
    redis.call('SET', l.lock, mine, 'PX', ttl)
    return true
  end,

  -- free lets a lock go that mine holds. What is free goes to the next.
  free = function(name, mine)
    local value = holder(name)
    if value and value ~= mine then return end
    redis.call('DEL', l.lock)
    pass(l)
  end,
}
