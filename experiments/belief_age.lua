-- Question  How fast does a belief become wrong?
-- Method    Open loop, 8 requests a second, working set 3, skew 1, 30 and 75 s between the turns of
--           a conversation, no spill rule. Believed tokens against those that the engine had, by
--           the time since the conversation was last asked for.
-- Seed      1 to 5
-- Run       kvroute run experiments/belief_age.lua --results experiments/results/belief_age
-- Takes     10 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local labels = { "first", "< 1", "1-2", "2-5", "5-10", "10-30", "30-60", "60-120", "> 120" }
-- Shares that were measured on the real fleet, in percent.
local measured = { 98.5, 98.9, 99.8, 99.4, 99.1, 97.6, 86.0, 98.1, 98.1 }

local function sums(found)
  local out = {}
  for i in ipairs(labels) do
    out[i] = { requests = 0, predicted = 0, honoured = 0, over = 0, over_tokens = 0 }
  end
  for _, pool in ipairs(found.pools) do
    for _, result in ipairs(pool.results) do
      for i, bucket in ipairs(result.collected.belief_age.buckets) do
        for name, value in pairs(bucket) do out[i][name] = out[i][name] + value end
      end
    end
  end
  return out
end

local function report(found)
  local rows = {}
  for i, sum in ipairs(sums(found)) do
    rows[i] = { labels[i], sum.requests,
      sum.predicted > 0 and ("%.1f"):format(100 * sum.honoured / sum.predicted),
      ("%.1f"):format(measured[i]), sum.over,
      sum.over > 0 and ("%.0f"):format(sum.over_tokens / sum.over) }
  end
  return lab.table.text({ title = "beliefs by the age of the conversation", rows = rows,
    head = { "last asked\nfor, s ago", "requests", "honoured\n%", "measured\n%",
      "too much\nbelieved", "by tokens\n(mean)" } })
end

local function bars(found)
  local ours, theirs = {}, {}
  for i, sum in ipairs(sums(found)) do
    ours[i] = sum.predicted > 0 and { y = 100 * sum.honoured / sum.predicted } or false
    theirs[i] = { y = measured[i] }
  end
  return { kind = "bars", title = "Believed tokens that the engine had, by age of the belief",
    x = { label = "time since the conversation was last asked for (s)" },
    y = { label = "honoured (%)", min = 60, max = 101 }, groups = labels,
    series = { { name = "emulated", colour = "#0072b2", values = ours },
      { name = "measured", colour = "#999999", values = theirs } } }
end

return study.experiment {
  name = "belief_age",
  question = "how fast does a belief become wrong?",
  axes = { { "think_s", 30, 75 } },
  ask = function(at) return { rate = 8, pool_s = at.think_s, working_set = 3, skew = 1 } end,
  measure = function(at)
    return at.think_s == 30 and { seconds = 480, warmup_s = 240 }
      or { seconds = 900, warmup_s = 300 }
  end,
  policies = { study.off },
  collect = { "experiments/collect/belief_age.lua" },
  seeds = 5,
  report = report,
  figures = function(found) return { honoured = bars(found) } end,
}
