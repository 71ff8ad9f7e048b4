-- Question  Where does cache-aware routing pay, and does the index or the load bound carry it?
-- Method    Working set against the fleet's cache by skew of popularity, 12 points, all policies,
--           and prefix affinity with each spill rule and with none. The seed's pressure grid.
-- Seed      1 to 9
-- Run       kvroute run experiments/pressure_map.lua --results experiments/results/pressure_map
-- Takes     2 minutes on two cores; with --seeds 5 the 540 cells of `scripts/bench grid`
local lab = require("kvroute")
local study = require("kvroute.study")

local PA, SA, BSA, HASH = "prefix_affinity", "session_affinity", "bounded_session_affinity",
  "prefix_hash"
local OFF = "prefix_affinity /off"

local policies = { unpack(study.policies) }
for _, variant in ipairs({ study.off, study.mean, study.tokens }) do
  policies[#policies + 1] = variant
end

-- How much of the way from session affinity to prefix affinity the bound alone goes.
local function share_of_gap(found)
  local rows = {}
  for _, pools in ipairs(found:places()) do
    local function at(policy) return found:find(policy, pools[1].at):value("goodput") end
    local gap, ours = at(PA) - at(SA), at(BSA) - at(SA)
    local deflected = found:find(BSA, pools[1].at)
    rows[#rows + 1] = { pools[1].place,
      gap > 0.05 * at(SA) and ("%.0f %%"):format(100 * ours / gap) or false,
      deflected:shown("deflected_share") }
  end
  return lab.table.text({
    title = "what a load bound alone gains", rows = rows,
    head = { "working_set, skew", "share of the gap\nfrom SA to PA", "turns\ndeflected" },
  })
end

local function report(found)
  return table.concat({
    study.matrices(found, { "goodput" }),
    study.margins(found, { { PA, SA }, { PA, BSA }, { PA, HASH }, { PA, OFF } }),
    share_of_gap(found),
    study.matrices(found, { "hit_rate", "ttft_p99_ms", "spill_rate", "cold_share",
      "busiest_share" }),
  }, "\n")
end

local function map(found, policy, baseline, title)
  local figure = lab.figure.against(found, "goodput", study.grid_axes, policy, baseline)
  figure.kind, figure.title = "heat", title
  return figure
end

return study.experiment {
  name = "pressure_map",
  question = "where does cache-aware routing pay?",
  axes = study.grid(),
  ask = function(at) return { working_set = at.working_set, skew = at.skew } end,
  policies = policies,
  report = report,
  figures = function(found)
    return {
      over_session = map(found, PA, SA, "Goodput of prefix affinity over session affinity"),
      over_bounded = map(found, PA, BSA,
        "Goodput of prefix affinity over bounded session affinity"),
      over_hash = map(found, PA, HASH, "Goodput of prefix affinity over a prefix hash"),
      spill = map(found, PA, OFF, "Goodput of prefix affinity with its spill rule over without"),
    }
  end,
}
