-- Question  What does a plan lose when rates have drifted, and what does a new one cost (Table 12
--           of CacheRoute)?
-- Method    70B engines, 128 keys ("reconstructed workload"), Poisson arrivals, at the paper's rate
--           and near the knee of warm caches. After 54,000 requests every key's rate is multiplied
--           by a lognormal draw, sigma 0.3. Either the plan stays (stale), or one is made from
--           scratch, by the new rates, 500 requests later (fresh). Losses are of 5,000 requests,
--           48,000 after the change, when both are warm: stale against fresh. The dip is of the
--           requests that follow the new plan, against the very same ones under the stale one.
--           Each seed is a transition of its own; the paper has three of one walk. hysteresis.lua
--           has plans that move few keys.
-- Seed      2 to 6
-- Run       kvroute run experiments/cacheroute_drift.lua --results
--             experiments/results/cacheroute_drift
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local lab = require("kvroute")

local set = lab.settings { rates = { 160, 200 }, sigma = 0.3 }

local CHANGE, LATER, SETTLE, MEASURED = 54000, 500, 48000, 5000

-- Cached share of so many thousands of requests, in percent.
local function hit(result, first, count)
  local seen, prompt, cached = result.collected.by_number, 0, 0
  for i = first + 1, first + count do
    prompt, cached = prompt + seen.prompt[i], cached + seen.cached[i]
  end
  return 100 * cached / prompt
end

-- Of one seed: what the stale plan and the new one did to the same requests.
local function transition(stale, fresh)
  local made = fresh.plans[2]
  local function dip(thousands)
    local first = math.ceil((CHANGE + LATER) / 1000)
    return hit(stale, first, thousands) - hit(fresh, first, thousands)
  end
  local never = math.huge
  return {
    100 * made.keys_moved / made.keys_both,
    100 * (fresh.hit_rate - stale.hit_rate),
    (stale.ttft_p99_all or never) - (fresh.ttft_p99_all or never),
    made.stale - made.fresh, dip(1), dip(5), dip(12),
  }
end

local FORMATS = { "%.1f %%", "%+.1f", "%+.0f", "%+.2f", "%.1f", "%.1f", "%.1f" }

local function shown(values, name)
  local out = { name }
  for i, format in ipairs(FORMATS) do
    local value = values[i]
    out[i + 1] = value == math.huge and "never" or value == value and format:format(value) or false
  end
  return out
end

local function report(found)
  local rows = {}
  for _, rate in ipairs(set.rates) do
    local stale = found:find("cacheroute", { rate = rate, plan = "stale" })
    local fresh = found:find("cacheroute", { rate = rate, plan = "fresh" })
    local columns = {}
    for i, cell in ipairs(fresh.cells) do
      local values = transition(stale.results[i], fresh.results[i])
      rows[#rows + 1] = shown(values, ("%g/s, seed %d"):format(rate, cell.seed))
      for j, value in ipairs(values) do
        columns[j] = columns[j] or {}
        table.insert(columns[j], value)
      end
    end
    local medians = {}
    for j, values in ipairs(columns) do medians[j] = lab.stats.median(values) end
    rows[#rows + 1] = shown(medians, ("%g/s, median"):format(rate))
  end
  rows[#rows + 1] = { "the paper, mean at 160/s", "94.5 %", "+1.0", "+192", false, false, "13.6" }
  return lab.table.text({ rows = rows, head = { "transition", "keys\nmoved",
    "hit lost,\npoints", "p99 lost,\nms", "more\nimbalance",
    "dip of next\n1,000", "\n5,000", "\n12,000" }, notes = {
      cacheroute.NOTES[1],
      "Lost by the stale plan. The dip: points of hit rate, of so many requests after a new plan.",
      "The paper's dip names no window. Its worst transition lost 3.0 points and 858 ms." } })
end

return cacheroute.experiment {
  name = "cacheroute_drift",
  question = "what does a plan lose when rates have drifted, and what does a new one cost?",
  axes = { { "rate", unpack(set.rates) }, { "plan", "stale", "fresh" } },
  profile = cacheroute.PROFILE_70B,
  policies = { "cacheroute" },
  ask = function() return { drift_sigma = set.sigma, drift_requests = CHANGE } end,
  router = function(at)
    return at.plan == "fresh" and { plan_true = true,
      plan_interval_ms = 1000 * (CHANGE + LATER) / at.rate } or {}
  end,
  measure = { warmup_requests = CHANGE + SETTLE, requests = MEASURED, drain_s = 30,
    timeout_s = 30 },
  collect = { "experiments/collect/by_number.lua" },
  seeds = 5,
  report = report,
}
