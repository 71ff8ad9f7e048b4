-- Question  Is the mechanism load: do the hottest conversations end up on more than one replica?
-- Method    Over the grid, on how many of the five replicas the three conversations asked for most
--           were served, mean of the three, and the busiest replica's share of all requests.
-- Seed      1 to 9
-- Run       kvroute run experiments/hottest_sessions.lua --results DIR
-- Takes     1 minute on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local policies = { "session_affinity", "bounded_session_affinity", "prefix_hash", study.off,
  "prefix_affinity" }

local function replicas(result) return result.collected.hottest.replicas end

local function spread(found)
  local rows, head = {}, { "working_set, skew" }
  for i, policy in ipairs(found:policies()) do head[i + 1] = (policy:gsub("[ _]", "\n")) end
  head[#head + 1] = "their share\nof requests"
  for _, pools in ipairs(found:places()) do
    local row = { pools[1].place }
    for i, pool in ipairs(pools) do
      local values = pool:each(replicas)
      row[i + 1] = ("%.2f (%.2f-%.2f)"):format(lab.stats.median(values), lab.stats.range(values))
    end
    row[#row + 1] = pools[#pools]:median(function(result)
      return 100 * result.collected.hottest.share
    end, "%.1f %%")
    rows[#rows + 1] = row
  end
  return lab.table.text({ title = "replicas that served the three hottest conversations (of 5)",
    head = head, rows = rows })
end

local function bars(found)
  local series, groups = {}, {}
  for i, policy in ipairs(found:policies()) do
    series[i] = { name = policy, values = {} }
    for j, skew in ipairs(study.skews) do
      local pool = found:find(policy, { working_set = 1, skew = skew })
      local values = pool and pool:each(replicas) or {}
      local least, most = lab.stats.range(values)
      series[i].values[j] = pool and { y = lab.stats.median(values), low = least, high = most }
        or false
      groups[j] = tostring(skew)
    end
  end
  return { kind = "bars", title = "Replicas that served the three hottest conversations",
    x = { label = "skew, at working set 1" }, y = { label = "replicas of five", min = 0, max = 5 },
    groups = groups, series = series }
end

return study.experiment {
  name = "hottest_sessions",
  question = "do the hottest conversations end up on more than one replica?",
  axes = study.grid(),
  ask = function(at) return { working_set = at.working_set, skew = at.skew } end,
  policies = policies,
  collect = { "experiments/collect/hottest.lua" },
  report = function(found)
    return spread(found) .. "\n" .. study.matrices(found, { "busiest_share" })
  end,
  figures = function(found) return { replicas = bars(found) } end,
}
