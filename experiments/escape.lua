-- Question  What does it buy that a planned key may leave a destination that is too busy?
-- Method    Thirty 70B engines under 128 keys of 42 variants ("reconstructed workload"), 140
--           requests a second, Poisson, and the plan of the first moment: right for good, stale
--           (weights walk at random, sigma 0.3 or 0.6 in 100 s), or one engine in thirty takes
--           twice the time a step. `escape` is the load above the least loaded replica from which
--           a planned key goes there; 0 never.
-- Seed      1 to 5
-- Run       kvroute run experiments/escape.lua --results experiments/results/escape
-- Takes     2 minutes on two cores
local lab = require("kvroute")

local set = lab.settings {
  keys = 128, slots = 5, rate = 140, escapes = { 0, 8, 16, 24, 32, 48, 64 }, step_s = 100,
  warmup = 20000, requests = 20000,
}

local plans = { "right", "stale, sigma 0.3", "stale, sigma 0.6", "a slow engine" }
local sigma = { ["stale, sigma 0.3"] = 0.3, ["stale, sigma 0.6"] = 0.6 }
local REPLICAS, STEPS = 30, 5

local function fleet(at)
  local slowdowns = {}
  for i = 1, REPLICAS do slowdowns[i] = at.plan == "a slow engine" and i == 1 and 2 or 1 end
  return lab.fleet.simulated { profile = "h100x2-70b-fp8", replicas = REPLICAS,
    slowdowns = slowdowns }
end

local function row_of(pool)
  return {
    pool.at.escape == 0 and "never" or tostring(pool.at.escape),
    pool:median(function(r) return 100 * (r.reasons.escaped or 0) / r.requests end, "%.1f"),
    pool:shown("hit_rate", true), pool:shown("ttft_p99_all_ms", true),
    pool:shown("imbalance", true),
  }
end

local function report(found)
  return found:tables("plan", plans, "the plan is: %s",
    { "escape", "escaped\n%", "hit rate", "TTFT p99\nof all", "busiest\nover mean" }, row_of)
end

return lab.experiment {
  name = "escape",
  question = "what does it buy that a planned key may leave a destination that is too busy?",
  axes = { { "plan", unpack(plans) }, { "escape", unpack(set.escapes) } },
  fleet = fleet,
  router = { plan_slots = set.slots, plan_at_start = true },
  workload = function(at)
    local walks = sigma[at.plan]
    return lab.workload.keys { keys = set.keys, rate = set.rate, gap_cv = 1,
      drift_sigma = walks and walks / math.sqrt(STEPS) or 0,
      drift_requests = walks and set.rate * set.step_s / STEPS or 0 }
  end,
  policies = function(at)
    return { { "cacheroute", params = { escape = at.escape }, label = "cacheroute" } }
  end,
  measure = { warmup_requests = set.warmup, requests = set.requests, drain_s = 30 },
  slo = { ttft_ms = 3500 },
  ignore = { "past saturation", "failures", "fleet slowed", "cold opening" },
  seeds = 5,
  report = report,
}
