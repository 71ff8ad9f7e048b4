-- Question  What does it buy to admit keys by the cache they take, where prefixes differ in size?
-- Method    Thirty 70B engines under 256 keys of 42 variants whose lengths differ (lognormal,
--           sigma 1: a tenth of the keys has two fifths of the text), more than the caches
--           hold, 60 requests a second, Poisson. The plan knows rates and sizes. Equal slots: so
--           many copies for each engine, on average, by falling rate. By size: as many prefixes as
--           are so much of an engine's cache (641k tokens), by prefill tokens saved a second over
--           tokens taken, and placed where there is room; with residency, less what two choices
--           would find as well after an idle prefix has been in a cache for so long.
-- Seed      1 to 5
-- Run       kvroute run experiments/byte_aware.lua --results experiments/results/byte_aware
-- Takes     2 minutes on two cores
local lab = require("kvroute")

local set = lab.settings {
  keys = 256, rate = 60, sigma = 1, variant = 1600, slots = { 3, 5, 7, 9 },
  parts = { 0.5, 0.7, 0.9, 1.1, 1.3 }, residency_s = 100, warmup = 20000, requests = 6000,
}

local CACHE = 641000 -- tokens of an engine

local plans, names = {}, {}
local function add(name, settings)
  names[#names + 1] = name
  plans[name] = settings
end

add("no plan", {})
for _, slots in ipairs(set.slots) do add(("%g slots"):format(slots), { plan_slots = slots }) end
for _, part in ipairs(set.parts) do
  add(("%g of the cache"):format(part), { plan_tokens = part * CACHE })
end
add("1.1, residency", { plan_tokens = 1.1 * CACHE, plan_residency_s = set.residency_s })

local function report(found)
  local rows = {}
  for i, pool in ipairs(found.pools) do
    local function planned(name, format)
      return pool:median(function(r) return r.plans and r.plans[1][name] end, format)
    end
    rows[i] = { pool.at.plan, planned("admitted", "%.0f"), planned("imbalance", "%.2f"),
      pool:shown("imbalance"), pool:shown("hit_rate", true), pool:shown("ttft_p99_all_ms", true) }
  end
  return lab.table.text({ rows = rows, head = { "plan", "keys\nplanned", "expected\nimbalance",
    "busiest\nover mean", "hit rate", "TTFT p99\nof all" } })
end

return lab.experiment {
  name = "byte_aware",
  question = "what does it buy to admit keys by the cache that they take, where sizes differ?",
  axes = { { "plan", unpack(names) } },
  fleet = lab.fleet.simulated { profile = "h100x2-70b-fp8", replicas = 30 },
  router = function(at)
    local out = { plan_at_start = next(plans[at.plan]) ~= nil }
    for name, value in pairs(plans[at.plan]) do out[name] = value end
    return out
  end,
  workload = function()
    return lab.workload.keys { keys = set.keys, rate = set.rate, gap_cv = 1,
      variant_tokens = set.variant, length_sigma = set.sigma }
  end,
  policies = { "cacheroute" },
  measure = { warmup_requests = set.warmup, requests = set.requests, drain_s = 30 },
  slo = { ttft_ms = 3500 },
  ignore = { "past saturation", "failures", "fleet slowed", "cold opening" },
  seeds = 5,
  report = report,
}
