-- Question  Does a router that changes its policy with what it sees win where one policy does not?
-- Method    On the pressure grid nothing beats prefix affinity (regime_map), so there is nothing to
--           switch to. Past saturation session affinity does (concurrency_crossover, load_axis):
--           experiments/policies/adaptive.lua takes its ring there. The frozen point over load in
--           both loops, all with the spill rule that does not misfire.
-- Seed      1 to 9
-- Run       kvroute run experiments/adaptive.lua --results experiments/results/adaptive
-- Takes     1 minute on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local ADAPTIVE, PREFIX = "adaptive", study.mean_3.label

local policies = {
  "session_affinity",
  study.mean_3,
  { "experiments/policies/adaptive.lua", spill = study.mean_3.spill, label = ADAPTIVE },
}

local function panel(found, loop, x)
  return lab.figure.over(found, "goodput", study.load_number, x,
    { regime = loop, title = loop .. " loop" })
end

return study.experiment {
  name = "adaptive",
  question = "does a router that changes its policy with what it sees win?",
  axes = study.loads { "c16", "c32", "c64", "c80", "c96", "c128", "c192", "a6", "a8", "a10", "a12",
    "a14", "a16", "a20" },
  ask = study.asked_at_load,
  measure = study.measure_at_load,
  policies = policies,
  report = function(found)
    return study.matrices(found, { "goodput" }) .. "\n"
      .. study.margins(found, { { ADAPTIVE, PREFIX }, { ADAPTIVE, "session_affinity" },
        { PREFIX, "session_affinity" } })
  end,
  figures = function(found)
    return { goodput = { kind = "lines", title = "Goodput of a policy that switches, working set 1",
      panels = {
        panel(found, "closed", { label = "users", log2 = true, min = 16, max = 192,
          ticks = { 16, 32, 64, 96, 128, 192 } }),
        panel(found, "open", { label = "requests a second", min = 6, max = 20 }),
      } } }
  end,
}
