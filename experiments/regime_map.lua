-- Question  Which policy wins where, and which comes second?
-- Method    The cells of the pressure map, once among the four policies that the seed compared and
--           once among all six. A winner whose range touches the next one's is contested.
-- Seed      1 to 9
-- Run       kvroute run experiments/regime_map.lua --results experiments/results/regime_map
-- Takes     2 minutes on two cores, nothing after pressure_map
local lab = require("kvroute")
local study = require("kvroute.study")

local FOUR = { "round_robin", "least_outstanding", "session_affinity", "prefix_affinity" }

local function ranked(found, at, policies)
  local pools = {}
  for i, policy in ipairs(policies) do pools[i] = found:find(policy, at) end
  table.sort(pools, function(a, b) return a:value("goodput") > b:value("goodput") end)
  return pools
end

local function ranks(found, policies, title)
  local rows = {}
  for _, pools in ipairs(found:places()) do
    local order = ranked(found, pools[1].at, policies)
    local row = { pools[1].place }
    for i = 1, 3 do
      row[i + 1] = ("%s %s"):format(order[i].policy, order[i]:shown("goodput"))
    end
    row[5] = order[1]:against(order[2], "goodput").text
    rows[#rows + 1] = row
  end
  return lab.table.text({ title = title, rows = rows,
    head = { "working_set, skew", "first", "second", "third", "first over\nsecond" } }, 120)
end

local function map(found, policies, title)
  local figure = lab.figure.winners(found, "goodput", study.grid_axes, { policies = policies })
  figure.kind, figure.title = "heat", title
  return figure
end

return study.experiment {
  name = "regime_map",
  question = "which policy wins where?",
  axes = study.grid(),
  ask = function(at) return { working_set = at.working_set, skew = at.skew } end,
  report = function(found)
    return ranks(found, FOUR, "goodput/s, the seed's four policies") .. "\n"
      .. ranks(found, study.policies, "goodput/s, all six")
  end,
  figures = function(found)
    return {
      four = map(found, FOUR, "Most goodput: the seed's four policies"),
      six = map(found, study.policies, "Most goodput: all six policies"),
    }
  end,
}
