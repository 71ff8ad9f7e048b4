-- Question  What should the spill rule compare a replica's load with, so that it does not misfire
--           where the whole fleet holds a dozen requests?
-- Method    The frozen point over load in both loops. The rule compares requests in flight with a
--           multiple of the fewest (the seed's, factor 2) or of the mean, or tokens still to be
--           prefilled. A turn that was moved is followed: was it within the limits?
-- Seed      1 to 5
-- Run       kvroute run experiments/spill_signal.lua --results experiments/results/spill_signal
-- Takes     2 minutes on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local policies = {
  "session_affinity",
  study.off,
  "prefix_affinity",
  { "prefix_affinity", spill = { "load_min", params = { factor = 4 } },
    label = "prefix_affinity /load_min 4" },
  study.mean,
  study.mean_3,
  study.tokens,
  { "prefix_affinity", spill = { "tokens", params = { seconds = 2 } },
    label = "prefix_affinity /tokens 2" },
}

-- Of the turns that were moved, how many missed the limits.
local function missed(found)
  local head, rows = { "load" }, {}
  for i, policy in ipairs(found:policies()) do head[i + 1] = (policy:gsub(" ", "\n")) end
  for _, pools in ipairs(found:places()) do
    local row = { pools[1].at.load }
    for i, pool in ipairs(pools) do
      local moved, good = 0, 0
      for _, result in ipairs(pool.results) do
        moved = moved + result.collected.spilled.spilled
        good = good + result.collected.spilled.spilled_good
      end
      row[i + 1] = moved >= 20 and ("%.0f %%"):format(100 * (moved - good) / moved)
    end
    rows[#rows + 1] = row
  end
  return lab.table.text({ title = "moved turns that missed the limits (of 20 and more)",
    head = head, rows = rows })
end

local function panels(found, metric)
  local out = {}
  for i, loop in ipairs({ "closed", "open" }) do
    local x = loop == "closed" and { label = "users", log2 = true, min = 8, max = 64,
      ticks = { 8, 16, 32, 64 } } or { label = "requests a second", min = 2, max = 10 }
    out[i] = lab.figure.over(found, metric, study.load_number, x,
      { regime = loop, title = loop .. " loop" })
  end
  return out
end

return study.experiment {
  name = "spill_signal",
  question = "what should the spill rule compare a replica's load with?",
  axes = study.loads { "c8", "c16", "c32", "c64", "a2", "a4", "a6", "a7", "a8", "a10" },
  ask = study.asked_at_load,
  measure = study.measure_at_load,
  policies = policies,
  collect = { "experiments/collect/spilled.lua" },
  seeds = 5,
  report = function(found)
    return study.matrices(found, { "goodput", "spill_rate" }) .. "\n" .. missed(found)
  end,
  figures = function(found)
    return {
      goodput = { kind = "lines", title = "Goodput by spill rule, working set 1, no skew",
        panels = panels(found, "goodput") },
      spilled = { kind = "lines", title = "How often each rule fires",
        panels = panels(found, "spill_rate") },
    }
  end,
}
