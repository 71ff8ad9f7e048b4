-- Question  Which part of CacheRoute does what (Table 4)?
-- Method    8B engines, 128 keys of which eight share 45 % of the traffic ("reconstructed
--           workload"), so that one copy of them is not enough: at most 8 requests a second each,
--           240 slots. One part after the other: two choices; a key's replica named by a hash; as
--           many copies as the rate asks for, named by a hash; the same copies placed by load. Hit
--           rate and imbalance, requests of the busiest replica over the mean, are of one rate.
-- Seed      2 to 4, as the paper
-- Run       kvroute run experiments/cacheroute_table4.lua --results
--             experiments/results/cacheroute_table4
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local set = lab.settings {
  whales = 8, share = 0.45, q_cap = 8, slots = 8, rates = cacheroute.RATES_8B,
  common = 240, -- requests a second; one of the rates
}

local HASHED = "experiments/policies/hashed_copies.lua"

local steps = {
  { "p2c", label = "Flat-LB" },
  { HASHED, params = { most = 1 }, label = "+ affinity" },
  { HASHED, label = "+ replication" },
  { "cacheroute", label = "+ LPT" },
}

local paper = { -- hit rate, imbalance, capacity
  ["Flat-LB"] = { "56 %", "1.00", "240" }, ["+ affinity"] = { "88 %", "3.46", "240" },
  ["+ replication"] = { "88 %", "2.60", "240" }, ["+ LPT"] = { "90 %", "1.24", "500" },
}

local function report(found)
  local rows = {}
  for i, policy in ipairs(found:policies()) do
    local pool = found:find(policy, { rate = set.common })
      or error("--set common is not among the rates", 0)
    local there = paper[policy]
    rows[i] = {
      policy, cacheroute.beside(pool:shown("hit_rate", true), there[1]),
      cacheroute.beside(pool:shown("imbalance", true), there[2]),
      cacheroute.beside(capacity.text(capacity.of(found, policy, nil, cacheroute.LIMIT_MS)),
        there[3]),
    }
  end
  local at = ("@%g/s"):format(set.common)
  return cacheroute.text({ rows = rows, head = { "configuration", "hit rate\n" .. at,
    "imbalance\n" .. at, "capacity\n@3.5 s" } })
end

return cacheroute.experiment {
  name = "cacheroute_table4",
  question = "which part of CacheRoute does what?",
  profile = cacheroute.PROFILE_8B,
  rates = set.rates, all = true,
  policies = steps,
  ask = { whales = set.whales, whale_share = set.share },
  router = { plan_slots = set.slots, plan_q_cap = set.q_cap },
  report = report,
}
