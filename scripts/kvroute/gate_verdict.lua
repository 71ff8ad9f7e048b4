-- What a gate concludes from paired repetitions: `enable` or `keep`, and why. Seeds pair the two
-- policies, so spread is that of their differences: a mean with its 95 % interval (Student's t)
-- that holds no zero is a difference, anything else a tie.
--
--   failures higher at any load              keep
--   p99 higher at any load                   keep
--   p99 lower near the knee, by `gain`       enable
--   holds the limit where the baseline fails enable
--   else                                     keep: a tie, whatever the hit rate
--
-- So a hit gain alone enables nothing.
local stats = require("kvroute.stats")

local M = {}

---@class kvr.GateMeasure one repetition of one policy at one load
---@field hit number 0..1, served: cached prompt tokens over all
---@field imbalance number requests of the busiest replica over the mean
---@field p99_ms number time to first token of all requests; infinite: over 1 % have none
---@field failed number share of the requests
---@field fallbacks number requests that C decided, since the script failed
---@field token_ms number p99 of an answer's mean time for each token after the first

---@class kvr.GateLoad
---@field name "below"|"near"|"above"
---@field rate number requests a second
---@field against kvr.GateMeasure[] the baseline's, by seed
---@field candidate kvr.GateMeasure[] by the same seeds

---@class kvr.GateLimits
---@field ttft_ms number
---@field failed number most share of failures
---@field gain number least share by which p99 must fall
---@field patience_ms number what a request without an answer counts as

---@class kvr.Difference
---@field mean number candidate - baseline; of p99 as a ratio - 1
---@field half number of the 95 % interval; NaN with one pair
---@field sign integer 1 higher, -1 lower, 0 a tie within spread

---@param a number[] candidate
---@param b number[] baseline
---@return kvr.Difference
function M.difference(a, b)
  local d = {}
  for i = 1, #a do d[i] = a[i] - b[i] end
  local mean, half = stats.interval(d)
  -- Equal results differ by nothing, and with one pair nothing is known of a spread.
  local apart = half == half and math.abs(mean) > half
  return { mean = mean, half = half, sign = apart and (mean > 0 and 1 or -1) or 0 }
end

---@param measures kvr.GateMeasure[]
---@param of fun(measure: kvr.GateMeasure): number
---@return number[]
local function values(measures, of)
  local out = {}
  for i, measure in ipairs(measures) do out[i] = of(measure) end
  return out
end
M.values = values

-- Ratios of times: their logarithms are compared.
local function p99_difference(load, limits)
  local function of(measure) return math.log(math.min(measure.p99_ms, limits.patience_ms)) end
  return M.difference(values(load.candidate, of), values(load.against, of))
end

---All differences of one load.
---@param load kvr.GateLoad
---@param limits kvr.GateLimits
---@return table<string, kvr.Difference>
function M.differences(load, limits)
  local out = { p99 = p99_difference(load, limits) }
  for _, name in ipairs({ "hit", "imbalance", "failed" }) do
    local function of(measure) return measure[name] end
    out[name] = M.difference(values(load.candidate, of), values(load.against, of))
  end
  return out
end

---Is that repetition within the limits?
---@param measure kvr.GateMeasure
---@param limits kvr.GateLimits
---@return boolean
function M.passes(measure, limits)
  return measure.p99_ms <= limits.ttft_ms and measure.failed <= limits.failed
end

---How many repetitions are.
---@param measures kvr.GateMeasure[]
---@param limits kvr.GateLimits
---@return integer
function M.passing(measures, limits)
  local count = 0
  for _, measure in ipairs(measures) do count = count + (M.passes(measure, limits) and 1 or 0) end
  return count
end

local ORDER = { "near", "below", "above" } -- which reason is given

local words = { below = "below the knee", near = "near the knee", above = "above the knee" }

---@param d kvr.Difference of logarithms
---@return string # "-38 % (-45 to -30)"
function M.percent(d)
  local function shown(log) return ("%+.0f"):format(100 * (math.exp(log) - 1)) end
  if d.half ~= d.half then return shown(d.mean) .. " %" end
  return ("%s %% (%s to %s)"):format(shown(d.mean), shown(d.mean - d.half), shown(d.mean + d.half))
end

-- Beyond the knee both are meant to fall behind: there only failures count.
local function worse(by_name, limits)
  for _, name in ipairs(ORDER) do
    local load = by_name[name]
    local found = load and M.differences(load, limits)
    if load and found.failed.sign > 0 then
      return ("failures are higher %s"):format(words[name])
    elseif load and name ~= "above" and found.p99.sign > 0 then
      return ("p99 is higher %s: %s"):format(words[name], M.percent(found.p99))
    end
    for _, measure in ipairs(load and load.candidate or {}) do
      if measure.fallbacks > 0 then return "the candidate's script failed" end
    end
  end
end

local function with_hit(reason, near)
  if near.hit.sign <= 0 then return reason end
  return ("%s; %+.1f points of hit rate alone are no reason"):format(reason, 100 * near.hit.mean)
end

---@param loads kvr.GateLoad[]
---@param limits kvr.GateLimits
---@return "enable"|"keep" verdict
---@return string reason
function M.judge(loads, limits)
  local by_name = {}
  for _, load in ipairs(loads) do by_name[load.name] = load end
  local near = M.differences(by_name.near, limits)
  local why = worse(by_name, limits)
  if why then return "keep", with_hit(why, near) end
  if near.p99.sign < 0 and near.p99.mean <= math.log(1 - limits.gain) then
    return "enable", "p99 is lower near the knee: " .. M.percent(near.p99)
  end
  local above = by_name.above
  if above and M.passing(above.candidate, limits) == #above.candidate then
    return "enable", ("it holds the limit at %.4g requests a second, where the baseline fails")
      :format(above.rate)
  end
  local what = near.p99.sign < 0 and "p99 falls too little near the knee: "
    or "p99 is a tie within spread near the knee: "
  return "keep", with_hit(what .. M.percent(near.p99), near)
end

return M
