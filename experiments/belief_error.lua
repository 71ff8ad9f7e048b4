-- Question  How wrong is the index, and in which direction?
-- Method    Over the working sets without skew, no spill rule, 32 users: of each request what the
--           index believed of its replica, in the engine's tokens, beside what the engine had.
-- Seed      1 to 5
-- Run       kvroute run experiments/belief_error.lua --results experiments/results/belief_error
-- Takes     5 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

-- Of the real fleet, one run each: honoured (%), requests over-predicted (%), tokens of those.
local measured = {
  [0.25] = { 100.0, 8.9, 4 }, [1] = { 98.9, 8.6, 314 }, [3] = { 99.2, 6.4, 246 },
  [8] = { 99.5, 3.9, 241 },
}

local function sum(pool)
  local out = { requests = 0, predicted = 0, honoured = 0, over = 0, over_tokens = 0, under = 0 }
  for _, result in ipairs(pool.results) do
    for name in pairs(out) do out[name] = out[name] + result.collected.belief_error[name] end
  end
  return out
end

local function report(found)
  local rows = {}
  for i, pool in ipairs(found.pools) do
    local s, real = sum(pool), measured[pool.at.working_set] or {}
    rows[i] = {
      pool.at.working_set, s.requests, ("%.1f"):format(100 * s.honoured / s.predicted),
      real[1] and ("%.1f"):format(real[1]), ("%.1f"):format(100 * s.over / s.requests),
      real[2] and ("%.1f"):format(real[2]), ("%.0f"):format(s.over_tokens / s.over),
      real[3] or false, ("%.1f"):format(100 * s.under / s.requests),
    }
  end
  return lab.table.text({ rows = rows, head = { "working_set", "requests", "honoured\n%",
    "\nmeasured", "over-\npredicted %", "\nmeasured", "by tokens\n(mean)", "\nmeasured",
    "under-\npredicted %" } })
end

local function bars(found)
  local groups, ours, theirs = {}, {}, {}
  for i, pool in ipairs(found.pools) do
    local s, real = sum(pool), measured[pool.at.working_set]
    groups[i] = tostring(pool.at.working_set)
    ours[i] = { y = s.over_tokens / s.over }
    theirs[i] = real and { y = real[3] } or false
  end
  return { kind = "bars", title = "How much too much the index believes, where it does",
    x = { label = "working set / KV cache of the fleet" },
    y = { label = "tokens believed and not there, mean" }, groups = groups,
    series = { { name = "emulated", colour = "#0072b2", values = ours },
      { name = "measured", colour = "#999999", values = theirs } } }
end

return study.experiment {
  name = "belief_error",
  question = "how wrong is the index, and in which direction?",
  axes = { { "working_set",
    unpack(lab.settings({ working_sets = study.working_sets }).working_sets) } },
  ask = function(at) return { working_set = at.working_set } end,
  policies = { study.off },
  collect = { "experiments/collect/belief_error.lua" },
  seeds = 5,
  report = report,
  figures = function(found) return { over = bars(found) } end,
}
