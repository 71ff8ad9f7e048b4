-- Question  Does the plan's margin depend on how popular keys are (Table 2 of CacheRoute)?
-- Method    As Table 1 on 70B engines, but for the keys' weights: the K most frequent of 128,824
--           whose rates are lognormal with the Gini coefficient of the paper's Table 6. Its second
--           distribution is not published; this one is ours, and stands for "another one". Its
--           hottest key has 3.9 % of the traffic of 128 and 2.7 % of that of 256 (2.0 and 1.3 in
--           Table 1). "Reconstructed workload".
-- Seed      2 to 4, as the paper
-- Run       kvroute run experiments/cacheroute_table2.lua --results
--             experiments/results/cacheroute_table2
-- Takes     2 minutes on two cores
local cacheroute = require("kvroute.cacheroute")

local paper = {
  [128] = { p2c = "30", session_affinity = "30", bounded_session_affinity = "100",
    dualmap = "100", preble_cap = "60", cacheroute = "100" },
  [256] = { p2c = "30", session_affinity = "60", bounded_session_affinity = "60",
    dualmap = "100", preble_cap = "60", cacheroute = "160" },
}

local function report(found)
  local columns = {}
  for i, keys in ipairs({ 128, 256 }) do
    columns[i] = { title = ("top-K %d\n@3.5 s"):format(keys), at = { keys = keys },
      paper = paper[keys] }
    columns[i + 2] = { title = ("top-K %d\n@5 s"):format(keys), at = { keys = keys },
      limit_ms = 5000 }
  end
  return cacheroute.text(cacheroute.capacities(found, columns))
end

return cacheroute.experiment {
  name = "cacheroute_table2",
  question = "does the plan's margin depend on how popular keys are?",
  axes = { { "keys", 128, 256 } },
  profile = cacheroute.PROFILE_70B,
  rates = cacheroute.RATES_70B,
  ask = function(at) return { keys = at.keys, population = 128824 } end,
  report = report,
}
