-- What a result is judged by: how each figure is read from one result, pooled over repetitions, and
-- written. Tables, CSV files and figures all take their names and units from here.
local evidence = require("kvroute.evidence")
local stats = require("kvroute.stats")

local M = {}

---@class kvr.Metric
---@field name string as experiments and CSV files say it
---@field title string head of a column
---@field unit string of the value, "" for none
---@field axis string label of an axis, with the unit
---@field better "more"|"less"|nil
---@field of fun(result: table): number? of one cell; nil: not known
---@field parts (fun(result: table): number, number)? numerator and denominator: pooled as sums
---@field show fun(value: number): string
---@field where (fun(result: table): boolean)? only these repetitions say anything; all

local function significant(value)
  if value == 0 then return "0" end
  local size = math.floor(math.log10(math.abs(value)))
  return ("%." .. math.max(0, 2 - math.max(size, 0)) .. "f"):format(value)
end

local function percent(value)
  return ("%.1f %%"):format(100 * value)
end

local function milliseconds(value)
  if value == math.huge then return "never" end
  return value >= 9999.5 and ("%.1f s"):format(value / 1000)
    or value >= 99.5 and ("%.0f ms"):format(value) or ("%.1f ms"):format(value)
end

local function whole(value)
  local text = ("%.0f"):format(value)
  return text == "-0" and "0" or text
end

local list = {} ---@type kvr.Metric[]
local by_name = {} ---@type table<string, kvr.Metric>

local function add(name, title, unit, axis, better, show, of, parts)
  local metric = {
    name = name, title = title, unit = unit, axis = axis, better = better, show = show, of = of,
    parts = parts,
  }
  list[#list + 1], by_name[name] = metric, metric
end

-- Of these repetitions alone.
local function only(name, where)
  by_name[name].where = where
end

-- A figure that stands in the result under this path.
local function at(...)
  local path = { ... }
  return function(result)
    local value = result
    for _, name in ipairs(path) do
      value = value[name]
      if type(value) ~= "table" and type(value) ~= "number" then return nil end
    end
    return value
  end
end

local function add_ratio(name, title, axis, better, parts)
  add(name, title, "", axis, better, percent, function(result)
    local above, below = parts(result)
    if not above or not below or below == 0 then return nil end
    return above / below
  end, parts)
end

local function share(name, of)
  return function(result) return result[name], result[of] end
end

local function add_quantiles(field, title, what)
  for _, p in ipairs({ "p50", "p90", "p95", "p99" }) do
    add(("%s_%s_ms"):format(field, p), ("%s\n%s"):format(title, p), "ms",
      ("%s, %s (ms)"):format(what, p), "less", milliseconds, at(field, p))
  end
  add(field .. "_mean_ms", title .. "\nmean", "ms", what .. ", mean (ms)", "less", milliseconds,
    at(field, "mean"))
end

add("goodput", "goodput\n/s", "/s", "goodput (requests/s)", "more", significant,
  at("goodput_per_s"))
add("throughput", "through-\nput /s", "/s", "throughput (requests/s)", "more", significant,
  at("throughput_per_s"))
add("requests", "requests", "", "requests", nil, whole, at("requests"))
add_ratio("hit_rate", "cached", "prompt tokens cached (%)", "more",
  share("cached_tokens", "prompt_tokens"))
local function recomputed(r)
  if not r.prompt_tokens or not r.cached_tokens or r.success == 0 then return nil end
  return (r.prompt_tokens - r.cached_tokens) / r.success
end
add("recomputed", "recomputed\ntokens", "tokens", "prompt tokens computed a request", "less", whole,
  recomputed, function(r) return r.prompt_tokens - r.cached_tokens, r.success end)
-- Against the best policy on the same bytes, a request each: totals would tell how many requests
-- a policy got through. See results.lua.
add("redundant", "redundant\ntokens", "tokens", "prompt tokens computed again a request", "less",
  whole, function(r)
    local own = recomputed(r)
    return own and own - r.least_recomputed
  end, function(r)
    return r.prompt_tokens - r.cached_tokens - r.success * r.least_recomputed, r.success
  end)
only("redundant", function(r) return r.least_recomputed ~= nil end)
add_quantiles("ttft", "TTFT", "time to first token")
for _, name in ipairs({ "p50", "p90", "p95", "p99", "mean" }) do
  only(("ttft_%s_ms"):format(name), function(r) return not evidence.saturated(r) end)
end
add_quantiles("itl", "ITL", "gap between tokens")
add_quantiles("e2el", "E2EL", "time to the end")
-- Of the router itself, live: from the poll that brought a request's last byte to the decision, and
-- to the write to the replica.
for _, p in ipairs({ "p50", "p99" }) do
  for _, each in ipairs({ { "decided", "until the decision" }, { "overhead", "in the router" } }) do
    local read = at(each[1], p)
    add(("%s_%s_us"):format(each[1], p), ("%s\n%s"):format(each[1], p), "us",
      ("%s, %s (us)"):format(each[2], p), "less", function(value)
        return whole(value) .. " us"
      end, function(result)
        local ms = read(result)
        return ms and 1000 * ms
      end)
  end
end
-- All requests, what failed as never: of runs where many do.
add("ttft_p99_all_ms", "TTFT p99\nof all", "ms", "time to first token of all, p99 (ms)", "less",
  milliseconds, function(r) return r.ttft_p99_all end)
add_ratio("good_share", "within\nSLO", "requests within the SLO (%)", "more",
  share("good", "requests"))
add_ratio("late_share", "TTFT\nmissed", "first tokens late (%)", "less",
  share("late_ttft", "success"))
add_ratio("slow_share", "ITL\nmissed", "requests with slow tokens (%)", "less",
  share("slow_itl", "success"))
add_ratio("spill_rate", "spilled", "decisions spilled (%)", nil, share("spilled", "requests"))
add_ratio("cold_share", "cold", "decisions without a match (%)", nil, share("cold", "requests"))
add_ratio("deflected_share", "deflected", "decisions deflected (%)", nil,
  share("deflected", "requests"))
add_ratio("honoured", "belief\nhonoured", "believed tokens that were cached (%)", "more",
  share("honoured_tokens", "believed_tokens"))
add_ratio("failed_share", "failed", "requests failed (%)", "less", function(r)
  return r.failed + r.dropped + r.unfinished, r.requests
end)
add("busiest_share", "busiest\nreplica", "", "requests on the busiest replica (%)", "less", percent,
  at("busiest_share"))
add("imbalance", "busiest\nover mean", "", "requests of the busiest replica over the mean", "less",
  significant, at("imbalance"))
-- Of those that served any.
add("uneven", "busiest\n/quietest", "", "requests of the busiest replica over the quietest", "less",
  significant, function(r)
    local quiet, busy = r.quietest_share, r.busiest_share
    return quiet and busy and quiet > 0 and busy / quiet or nil
  end)
add("backlog", "backlog", "", "requests open when arrivals end (%)", "less", percent, at("backlog"))
add("preemptions", "preempted", "", "preemptions", "less", whole, at("preemptions"))

---@param name string
---@return kvr.Metric
function M.find(name)
  local metric = by_name[name]
  if not metric then
    local names = {}
    for i, each in ipairs(list) do names[i] = each.name end
    error(("there is no metric %s; there are %s"):format(tostring(name),
      table.concat(names, ", ")), 0)
  end
  return metric
end

---@return kvr.Metric[]
function M.all() return list end

---@param metric kvr.Metric
---@param result table
---@return number? # nil: this one does not know it
function M.read(metric, result)
  if metric.where and not metric.where(result) then return nil end
  return metric.of(result)
end

---The repetitions that this metric is read from.
---@param metric kvr.Metric
---@param results table[]
---@return table[]
function M.among(metric, results)
  if not metric.where then return results end
  local out = {}
  for _, result in ipairs(results) do
    if metric.where(result) then out[#out + 1] = result end
  end
  return out
end

---One figure for repetitions: sums over sums for shares, else the median. What one repetition does
---not know, nobody knows.
---@param metric kvr.Metric
---@param results table[]
---@return number # NaN: not known
function M.pool(metric, results)
  local values, above, below = {}, 0, 0
  for i, result in ipairs(M.among(metric, results)) do
    values[i] = metric.of(result)
    if values[i] == nil then return 0 / 0 end
    if metric.parts then
      local a, b = metric.parts(result)
      above, below = above + a, below + b
    end
  end
  if #values == 0 then return 0 / 0 end
  return metric.parts and above / below or stats.median(values)
end

return M
