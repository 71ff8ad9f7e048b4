-- Question  What does the size of the fleet change at the same absolute load (Table 14 of
--           CacheRoute)?
-- Method    8B engines, 8, 30 or 60 of them. 2, 8 or 16 of 128 keys ask three times what an engine
--           gets on average, each (our reading of "2 whales@3.0"), and are split by the plan so
--           that a copy has at most half of the mean load of an engine; 500 of 7,680 tokens are
--           common to all, 6,000 are one of the key's 16 variants ("reconstructed workload").
-- Seed      2 to 4
-- Run       kvroute run experiments/cacheroute_table14.lua --results
--             experiments/results/cacheroute_table14
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local COMMON, EACH = 60, 3

local fleets = {
  { replicas = 8, whales = 2, paper = { "12 %", "45 %", "tail/KV only" } },
  { replicas = 30, whales = 8, paper = { "14 %", "70 %", "4.44x" } },
  { replicas = 60, whales = 16, paper = { "24 %", "32 %", "no win" } },
}

local function of(replicas)
  for _, each in ipairs(fleets) do
    if each.replicas == replicas then return each end
  end
end

local function report(found)
  local rows = {}
  for i, each in ipairs(fleets) do
    local row, own = { ("%d engines, %d whales"):format(each.replicas, each.whales) }, {}
    for j, policy in ipairs(cacheroute.two) do
      local at = { replicas = each.replicas }
      own[j] = capacity.of(found, policy, at, cacheroute.LIMIT_MS)
      local pool = found:find(policy, { replicas = each.replicas, rate = COMMON })
      row[1 + j] = cacheroute.beside(pool:shown("hit_rate"), each.paper[j])
      row[3 + j] = capacity.text(own[j])
    end
    row[6] = cacheroute.beside(capacity.ratio(own[2], own[1]) or "-", each.paper[3])
    rows[i] = row
  end
  local hit = "hit rate @%d/s\nFlat-LB"
  return cacheroute.text({ rows = rows, head = { "fleet", hit:format(COMMON), "\nCacheRoute",
    "capacity\nFlat-LB", "\nCacheRoute", "ratio" } })
end

return cacheroute.experiment {
  name = "cacheroute_table14",
  question = "what does the size of the fleet change at the same absolute load?",
  axes = { { "replicas", 8, 30, 60 } },
  rates = cacheroute.RATES_8B,
  fleet = function(at)
    return lab.fleet.simulated { profile = cacheroute.PROFILE_8B, replicas = at.replicas }
  end,
  policies = cacheroute.two,
  ask = function(at)
    local each = of(at.replicas)
    return { whales = each.whales, whale_share = each.whales * EACH / each.replicas,
      template_tokens = 500, variant_tokens = 6000, unique_tokens = 1000, variants = 16 }
  end,
  router = function(at)
    return { plan_slots = 12, plan_q_cap = at.rate / at.replicas / 2 }
  end,
  report = report,
}
