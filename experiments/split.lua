-- Question  What does it buy to split a key that is more than its destination's share?
-- Method    Thirty 70B engines, keys of 42 variants ("reconstructed workload"), Poisson arrivals, a
--           plan by the true rates with five slots for each engine and no q_cap. Every copy has at
--           most phi times the mean load of a destination; 0 is the paper, which splits by q_cap
--           alone. Keys: 128 by the law of the reconstruction; the same, but eight of them share
--           45 % of the traffic; 16 of them, fewer than engines.
-- Seed      1 to 5
-- Run       kvroute run experiments/split.lua --results experiments/results/split
-- Takes     2 minutes on two cores
local lab = require("kvroute")

local set = lab.settings {
  slots = 5, tokens = 0, rate = 120, phis = { 0, 2, 1, 0.7, 0.5, 0.25 }, warmup = 16000,
  requests = 6000,
}

local keys = {
  ["128 keys"] = { keys = 128 },
  ["128 keys, 8 of them hot"] = { keys = 128, whales = 8, whale_share = 0.45 },
  ["16 keys"] = { keys = 16 },
}
local names = { "128 keys", "128 keys, 8 of them hot", "16 keys" }

local function row_of(pool)
  local function planned(name, format)
    return pool:median(function(r) return r.plans[1][name] end, format)
  end
  return { pool.at.phi == 0 and "off" or ("%g"):format(pool.at.phi), planned("admitted", "%.0f"),
    planned("copies", "%.0f"), planned("imbalance", "%.2f"), pool:shown("imbalance", true),
    pool:shown("hit_rate", true), pool:shown("ttft_p99_all_ms", true) }
end

local function report(found)
  return found:tables("of", names, "%s", { "phi", "keys\nplanned", "copies",
    "expected\nimbalance", "busiest\nover mean", "hit rate", "TTFT p99\nof all" }, row_of)
end

return lab.experiment {
  name = "split",
  question = "what does it buy to split a key that is more than its destination's share?",
  axes = { { "of", unpack(names) }, { "phi", unpack(set.phis) } },
  fleet = lab.fleet.simulated { profile = "h100x2-70b-fp8", replicas = 30 },
  router = function(at)
    return { plan_slots = set.slots, plan_at_start = true, plan_phi = at.phi,
      plan_tokens = set.tokens > 0 and set.tokens or nil }
  end,
  workload = function(at)
    local options = { rate = set.rate, gap_cv = 1 }
    for name, value in pairs(keys[at.of]) do options[name] = value end
    return lab.workload.keys(options)
  end,
  policies = { "cacheroute" },
  measure = { warmup_requests = set.warmup, requests = set.requests, drain_s = 30 },
  slo = { ttft_ms = 3500 },
  ignore = { "past saturation", "failures", "fleet slowed", "cold opening" },
  seeds = 5,
  report = report,
}
