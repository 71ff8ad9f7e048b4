-- What load a policy carries: the highest rate of a ladder at which the tail of first tokens is
-- within a limit and few requests fail. It is found for each seed alone, and the seeds' knees are
-- what is averaged: a p99 that many runs share would say nothing of how far the knees are apart.
--
-- A seed that fails at every rate counts as 0, and one that passes the highest as that one. Both
-- are marked, since the ladder ends there and not the load.
local stats = require("kvroute.stats")

local M = {
  FAILED = 0.05, -- of the requests sent, at most: time-outs are among them
}

---@class kvr.Capacity
---@field values number[] by rising seed: the highest rate that passes, or 0
---@field seeds integer[] these seeds
---@field mean number NaN: nothing was run
---@field half number half the 95 % interval of Student's t; NaN below two seeds
---@field lowest number of the ladder
---@field below boolean some seed fails at the lowest
---@field above boolean some seed passes the highest

local function failed(result)
  return (result.requests - result.success) / result.requests
end

---@param result table
---@param limit_ms number of the first token, p99 over all requests, those that failed as never
---@return boolean
function M.passes(result, limit_ms)
  local p99 = result.ttft_p99_all or math.huge -- none when over a hundredth did not end
  return p99 <= limit_ms and failed(result) <= M.FAILED
end

---For `stop` of a ladder: what fails so has no rung above that passes.
---@param result table
---@return boolean
function M.hopeless(result)
  return failed(result) > M.FAILED
end

local function stands(pool, policy, at)
  local fits = pool.policy == policy
  for axis, value in pairs(at or {}) do fits = fits and pool.at[axis] == value end
  return fits
end

---Over the axis or ladder `rate`.
---@param results kvr.Results
---@param policy string label
---@param at table<string, any>? where the other axes stand
---@param limit_ms number
---@return kvr.Capacity
function M.of(results, policy, at, limit_ms)
  local best, seeds, lowest, highest = {}, {}, math.huge, 0
  for _, pool in ipairs(results.pools) do
    if stands(pool, policy, at) then
      lowest, highest = math.min(lowest, pool.at.rate), math.max(highest, pool.at.rate)
      for i, cell in ipairs(pool.cells) do
        if not best[cell.seed] then best[cell.seed], seeds[#seeds + 1] = 0, cell.seed end
        if M.passes(pool.results[i], limit_ms) then
          best[cell.seed] = math.max(best[cell.seed], pool.at.rate)
        end
      end
    end
  end
  table.sort(seeds)
  local values = {}
  for i, seed in ipairs(seeds) do values[i] = best[seed] end
  local mean, half = stats.interval(values)
  local least, most = stats.range(values)
  return { values = values, seeds = seeds, mean = mean, half = half, lowest = lowest,
    below = least == 0, above = most == highest }
end

---"176 +- 11"; "<30" below the ladder, "500+" at its end; "<24 +- 20" where only some are.
---@param capacity kvr.Capacity
---@return string|false
function M.text(capacity)
  local mean, half = capacity.mean, capacity.half
  if mean ~= mean then return false end
  if mean == 0 then return ("<%g"):format(capacity.lowest) end
  return ("%s%.0f%s%s"):format(capacity.below and "<" or "", mean, capacity.above and "+" or "",
    half == half and half > 0 and (" +- %.0f"):format(half) or "")
end

---One over the other, with what is cut off marked: ">2.1x" where the upper one is.
---@param upper kvr.Capacity
---@param lower kvr.Capacity
---@return string|false
function M.ratio(upper, lower)
  if not (upper.mean > 0 and lower.mean > 0) then return false end
  local more, less = upper.above or lower.below, lower.above or upper.below
  if more and less then return "cut off" end
  return ("%s%.2fx"):format(more and ">" or less and "<" or "", upper.mean / lower.mean)
end

---How much more one carries than the other, seed by seed: "+16 +- 11"; "+8 +- 9 tie" where the
---interval holds 0. Of one seed no interval is known, nor a tie.
---@param upper kvr.Capacity
---@param lower kvr.Capacity
---@return string|false
function M.difference(upper, lower)
  local theirs, out = {}, {}
  for i, seed in ipairs(lower.seeds) do theirs[seed] = lower.values[i] end
  for i, seed in ipairs(upper.seeds) do
    if theirs[seed] then out[#out + 1] = upper.values[i] - theirs[seed] end
  end
  if #out == 0 then return false end
  local mean, half = stats.interval(out)
  if half ~= half then return ("%+.0f"):format(mean) end
  return ("%+.0f +- %.0f%s"):format(mean, half, math.abs(mean) <= half and " tie" or "")
end

-- What a table of them has to say below.
M.NOTES = {
  "Capacity: requests a second, mean over seeds and half its 95 % interval. < a seed fails at the",
  "lowest rate and counts as 0; + a seed passes the highest. More than 5 % failed is no capacity.",
}

return M
