-- Question  What becomes of the margins when users pause between an answer and their next turn?
-- Method    The frozen point with a gap of 1 ms (the seed's driver) to 8 s, so the load falls as
--           the gap grows. A user that sends at once takes the very slot that its answer has freed.
-- Seed      1 to 5
-- Run       kvroute run experiments/client_gap.lua --results experiments/results/client_gap
-- Takes     40 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local gaps = { 1, 8, 32, 125, 500, 2000, 8000 }
local policies = { "round_robin", "least_outstanding", "session_affinity",
  "bounded_session_affinity", "prefix_affinity", study.mean_3 }

return study.experiment {
  name = "client_gap",
  question = "what becomes of the margins when users pause?",
  axes = { { "gap_ms", unpack(gaps) } },
  ask = function(at) return { think_ms = at.gap_ms } end,
  policies = policies,
  seeds = 5,
  report = function(found)
    return study.matrices(found, { "goodput", "hit_rate", "spill_rate" }) .. "\n"
      .. study.margins(found, { { "prefix_affinity", "session_affinity" },
        { "prefix_affinity /load_mean 3", "session_affinity" } })
  end,
  figures = function(found)
    local figure = lab.figure.over(found, "goodput", "gap_ms",
      { label = "gap between an answer and the next turn (ms)", log2 = true, min = 1, max = 8000,
        ticks = gaps })
    figure.kind, figure.title = "lines", "Goodput of 32 users by their pauses, working set 1"
    return { goodput = figure }
  end,
}
