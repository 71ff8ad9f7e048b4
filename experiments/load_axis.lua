-- Question  How does each policy carry more load, in a closed and in an open loop?
-- Method    The frozen point from 1 to 256 users who never pause, and from 2 to 20 requests a
--           second at even spacing, 5 s between the turns of a conversation. Two loops, two tables.
-- Seed      1 to 5
-- Run       kvroute run experiments/load_axis.lua --results experiments/results/load_axis
-- Takes     2 minutes on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local policies = { unpack(study.policies) }
policies[#policies + 1] = study.mean

local function panel(found, metric, loop)
  return lab.figure.over(found, metric, study.load_number, study.load_axes[loop],
    { regime = loop, title = loop .. " loop" })
end

local function both(found, metric, title)
  return { kind = "lines", title = title,
    panels = { panel(found, metric, "closed"), panel(found, metric, "open") } }
end

return study.experiment {
  name = "load_axis",
  question = "how does each policy carry more load?",
  axes = study.loads { "c1", "c4", "c8", "c16", "c32", "c64", "c128", "c256",
    "a2", "a4", "a6", "a8", "a10", "a12", "a14", "a16", "a20" },
  ask = study.asked_at_load,
  measure = study.measure_at_load,
  policies = policies,
  seeds = 5,
  report = function(found)
    return study.matrices(found, { "goodput", "hit_rate", "ttft_p99_ms", "spill_rate", "backlog" })
  end,
  figures = function(found)
    return {
      goodput = both(found, "goodput", "Goodput over load, working set 1, no skew"),
      cached = both(found, "hit_rate", "Prompt tokens served from the cache, over load"),
    }
  end,
}
