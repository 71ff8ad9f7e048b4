-- Question  How do the six policies fare on faster engines, by how many keys are active (Table 3 of
--           CacheRoute)?
-- Method    8B engines, from 16 to 2,000 keys, the requests of Table 1 ("reconstructed workload"):
--           only the engine's constants differ. A key has 42 variants, of 2,000 keys 8 each.
--           Poisson arrivals at each rate of the paper's ladder, from cold caches; 16,000 requests
--           to warm up, 5,000 measured. The plan has 150 slots.
-- Seed      2 to 4, as the paper
-- Run       kvroute run experiments/cacheroute_table3.lua --results
--             experiments/results/cacheroute_table3
-- Takes     4 minutes on two cores
local cacheroute = require("kvroute.cacheroute")
local lab = require("kvroute")

local set = lab.settings { keys = { 16, 32, 64, 128, 256, 2000 }, rates = cacheroute.RATES_8B }

local paper = {
  [16] = { 500, 100, 500, 100, 500, 500 }, [32] = { 500, 100, 360, 100, 360, 500 },
  [64] = { 500, 160, 360, 160, 360, 500 }, [128] = { 240, 240, 360, 360, 360, 500 },
  [256] = { 160, 240, 240, 360, 360, 500 }, [2000] = { 100, 360, 160, 360, 160, 360 },
}

local function report(found)
  local columns = {}
  for i, keys in ipairs(set.keys) do
    local there = {}
    for j, policy in ipairs(cacheroute.policies) do there[policy] = (paper[keys] or {})[j] end
    columns[i] = { title = ("top-K\n%d"):format(keys), at = { keys = keys }, paper = there }
  end
  return cacheroute.text(cacheroute.capacities(found, columns))
end

return cacheroute.experiment {
  name = "cacheroute_table3",
  question = "how do the six policies fare on faster engines, by how many keys are active?",
  axes = { { "keys", unpack(set.keys) } },
  profile = cacheroute.PROFILE_8B,
  rates = set.rates,
  ask = function(at) return { keys = at.keys, variants = at.keys > 1000 and 8 or 42 } end,
  report = report,
}
