-- What repetitions say together. Few and not normal: so medians and ranges, and a difference counts
-- only when the ranges do not touch. Means come with Student's t interval.
local M = {}

---A sorted copy without what is no number.
---@param values number[]
---@return number[]
local function sorted(values)
  local out = {}
  for _, value in ipairs(values) do
    if value == value then out[#out + 1] = value end
  end
  table.sort(out)
  return out
end

---Nearest rank, so always one of the values; NaN when there are none.
---@param values number[]
---@param share number 0..1
---@return number
function M.quantile(values, share)
  local all = sorted(values)
  return all[math.min(#all, math.max(1, math.ceil(#all * share)))] or 0 / 0
end

---@param values number[]
---@return number # the lower of two in the middle
function M.median(values)
  return M.quantile(values, 0.5)
end

---@param values number[]
---@return number least, number most
function M.range(values)
  local all = sorted(values)
  return all[1] or 0 / 0, all[#all] or 0 / 0
end

---@param values number[]
---@return number
function M.mean(values)
  local sum = 0
  for _, value in ipairs(values) do sum = sum + value end
  return sum / #values
end

---Of a sample: divided by n - 1. NaN below two values.
---@param values number[]
---@return number
function M.deviation(values)
  if #values < 2 then return 0 / 0 end
  local mean, sum = M.mean(values), 0
  for _, value in ipairs(values) do sum = sum + (value - mean) ^ 2 end
  return math.sqrt(sum / (#values - 1))
end

-- P(|T| <= t) for Student's T: the closed forms of Abramowitz and Stegun, 26.7.3 and 26.7.4.
local function within(t, freedom)
  local theta = math.atan(t / math.sqrt(freedom))
  local cos, sin = math.cos(theta), math.sin(theta)
  local term, sum = 1, 1
  if freedom % 2 == 0 then
    for k = 2, freedom - 2, 2 do
      term = term * cos * cos * (k - 1) / k
      sum = sum + term
    end
    return sin * sum
  end
  if freedom == 1 then return 2 * theta / math.pi end
  for k = 3, freedom - 2, 2 do
    term = term * cos * cos * (k - 1) / k
    sum = sum + term
  end
  return 2 / math.pi * (theta + sin * cos * sum)
end

---The t that holds a share of Student's distribution between -t and t.
---@param freedom integer degrees of freedom, at least 1
---@param share number? 0.95
---@return number
function M.student(freedom, share)
  local low, high = 0, 1
  share = share or 0.95
  while within(high, freedom) < share do high = high * 2 end
  for _ = 1, 100 do
    local middle = (low + high) / 2
    if within(middle, freedom) < share then low = middle else high = middle end
  end
  return (low + high) / 2
end

---@param values number[]
---@param share number? 0.95
---@return number mean, number half_width # the interval is mean - half_width .. mean + half_width
function M.interval(values, share)
  local n = #values
  if n < 2 then return M.mean(values), 0 / 0 end
  return M.mean(values), M.student(n - 1, share) * M.deviation(values) / math.sqrt(n)
end

---Do the ranges not touch? Below two values on a side nothing is known of a spread: false.
---@param a number[]
---@param b number[]
---@return boolean
function M.separated(a, b)
  if #a < 2 or #b < 2 then return false end
  local a_least, a_most = M.range(a)
  local b_least, b_most = M.range(b)
  return a_most < b_least or b_most < a_least
end

return M
