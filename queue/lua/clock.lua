-- clock: begins every script that handles times, which are µs.

-- us: a time as a string with all its digits, which tostring and .. would lose.
-- %d is a third of the work of %.0f, where it has 64 bits. For scores that may
-- be nobody's time there is any.
local digits = string.format('%d', 2 ^ 40) == '1099511627776' and '%d' or '%.0f'
local function us(time) return string.format(digits, tonumber(time)) end
local function any(score) return string.format('%.0f', tonumber(score)) end

-- clock: the server's now. A script asks once.
local function clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

-- when: a positive argument is that time; one of zero or less is a delay,
-- negated, counted from now.
local function when(arg, now)
  local at = tonumber(arg)
  if at <= 0 then at = now - at end
  return at
end
