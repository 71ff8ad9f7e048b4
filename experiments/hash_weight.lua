-- Question  How much load should one step down the ring be worth to a stateless prefix hash?
-- Method    The weight from 0 (load alone) to 32 (hash alone) at working set 1, skew 1.4, where
--           both matter; prefix affinity beside it.
-- Seed      1 to 9
-- Run       kvroute run experiments/hash_weight.lua --results experiments/results/hash_weight
-- Takes     15 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local weights = { 0, 1, 2, 4, 8, 12, 32 }
-- Weights on a scale that has room for 0.
local function place(at) return math.log(at.weight + 1) / math.log(2) end

return study.experiment {
  name = "hash_weight",
  question = "how much load should one step down the ring be worth?",
  axes = { { "weight", unpack(weights) } },
  ask = function() return { skew = 1.4 } end,
  policies = function(at)
    return { { "prefix_hash", params = { weight = at.weight }, label = "prefix_hash" },
      "prefix_affinity" }
  end,
  show = { metrics = { "goodput", "hit_rate", "deflected_share", "late_share", "slow_share",
    "busiest_share", "itl_p50_ms" }, baseline = "prefix_affinity" },
  figures = function(found)
    local panels, ticks = {}, {}
    for i, weight in ipairs(weights) do ticks[i] = { place({ weight = weight }), weight } end
    for i, name in ipairs({ "goodput", "slow_share" }) do
      panels[i] = lab.figure.over(found, name, place,
        { label = "weight of a step down the ring", min = 0, max = 5.2, ticks = ticks })
    end
    return { weight = { kind = "lines",
      title = "A prefix hash by its weight, working set 1, skew 1.4", panels = panels } }
  end,
}
