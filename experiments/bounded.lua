-- Question  How tight should the load bound of a consistent hash be?
-- Method    eps from 0.05 to 4 over the mean at working set 1 and each skew, between the plain ring
--           and prefix affinity. The grid at eps 0.25 is in the pressure map.
-- Seed      1 to 9
-- Run       kvroute run experiments/bounded.lua --results experiments/results/bounded
-- Takes     40 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local bounds = { 0.05, 0.125, 0.25, 0.5, 1, 2, 4 }
local BSA = "bounded_session_affinity"

return study.experiment {
  name = "bounded",
  question = "how tight should the load bound of a consistent hash be?",
  axes = { { "skew", unpack(study.skews) }, { "eps", unpack(bounds) } },
  ask = function(at) return { skew = at.skew } end,
  policies = function(at)
    return { "session_affinity", { BSA, params = { eps = at.eps }, label = BSA },
      "prefix_affinity" }
  end,
  report = function(found)
    return study.matrices(found, { "goodput", "hit_rate", "deflected_share", "busiest_share" })
      .. "\n" .. study.margins(found, { { BSA, "session_affinity" }, { "prefix_affinity", BSA } })
  end,
  figures = function(found)
    local panels = {}
    for i, skew in ipairs(study.skews) do
      panels[i] = lab.figure.over(found, "goodput", "eps",
        { label = "bound over the mean (eps)", log2 = true, min = 0.05, max = 4,
          ticks = bounds }, { at = { skew = skew }, title = "skew " .. skew })
    end
    return { eps = { kind = "lines", title = "Goodput by the bound of the ring, working set 1",
      panels = panels } }
  end,
}
