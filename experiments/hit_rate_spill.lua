-- Question  Should a replica whose cache forgets be declined, as one that is busy?
-- Method    The seed's second branch of the spill rule, at its marks: a match is declined when the
--           engine's own hit rate, as it reports it, is below the mark; then the rule of load_min.
--           Over the whole grid, against load_min alone.
-- Seed      1 to 5
-- Run       kvroute run experiments/hit_rate_spill.lua --results experiments/results/hit_rate_spill
-- Takes     1 minute on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local marks, policies, pairs_of = { 0.55, 0.62, 0.7 }, { "prefix_affinity" }, {}
for i, mark in ipairs(marks) do
  local label = ("mark %g"):format(mark)
  policies[i + 1] = { "prefix_affinity", label = label,
    spill = { "hit_rate", params = { low_water = mark, factor = 2 } } }
  pairs_of[i] = { label, "prefix_affinity" }
end

local function map(found, mark)
  local figure = lab.figure.against(found, "goodput", study.grid_axes, "mark " .. mark,
    "prefix_affinity")
  figure.kind, figure.title, figure.most = "heat",
    ("Goodput with hit rates below %g declined, over load_min alone"):format(mark), 100
  return figure
end

return study.experiment {
  name = "hit_rate_spill",
  question = "should a replica whose cache forgets be declined?",
  axes = study.grid(),
  ask = function(at) return { working_set = at.working_set, skew = at.skew } end,
  policies = policies,
  seeds = 5,
  report = function(found)
    return study.margins(found, pairs_of) .. "\n"
      .. study.matrices(found, { "goodput", "spill_rate", "hit_rate" })
  end,
  figures = function(found)
    return { mark_55 = map(found, 0.55), mark_70 = map(found, 0.7) }
  end,
}
