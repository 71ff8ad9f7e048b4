-- Question  What is left of the plan's margin with more active keys than it has slots for (Table 9
--           of CacheRoute)?
-- Method    As Table 1 with 256 keys, of which 150 have a slot. The caches are still filling: with
--           `--set warmup=48000` instead of 16,000 all hit rates are higher. "Reconstructed
--           workload".
-- Seed      2 to 9, as the paper
-- Run       kvroute run experiments/cacheroute_table9.lua --results
--             experiments/results/cacheroute_table9
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local set = lab.settings { warmup = cacheroute.measure.warmup_requests }
local COMMON = 60

local paper = {
  hit = { dualmap = "60 %", cacheroute = "82 %" }, knee = { dualmap = "60", cacheroute = "80" },
  loose = { dualmap = "100", cacheroute = "120" },
}

local function report(found)
  local out = cacheroute.capacities(found, {
    { title = "capacity\n@3.5 s", paper = paper.knee },
    { title = "capacity\n@5 s", limit_ms = 5000, paper = paper.loose },
  })
  local policies, last = found:policies(), { "difference" }
  for j, limit_ms in ipairs({ cacheroute.LIMIT_MS, 5000 }) do
    local own = {}
    for i, policy in ipairs(policies) do own[i] = capacity.of(found, policy, nil, limit_ms) end
    last[1 + j] = capacity.difference(own[2], own[1])
  end
  out.rows[#out.rows + 1] = last
  table.insert(out.head, 2, ("hit rate\n@%d/s"):format(COMMON))
  table.insert(last, 2, false)
  for i, policy in ipairs(policies) do
    local pool = found:find(policy, { rate = COMMON })
    table.insert(out.rows[i], 2, cacheroute.beside(pool:shown("hit_rate", true),
      paper.hit[policy]))
  end
  return cacheroute.text(out,
    "Difference: of paired seeds, and half its 95 % interval; tie: that holds 0.")
end

return cacheroute.experiment {
  name = "cacheroute_table9",
  question = "what is left of the margin with more active keys than slots?",
  profile = cacheroute.PROFILE_70B,
  rates = cacheroute.RATES_70B,
  ask = { keys = 256 },
  measure = { warmup_requests = set.warmup, requests = 5000, drain_s = 30, timeout_s = 30 },
  policies = { "dualmap", "cacheroute" },
  seeds = 8,
  report = report,
}
