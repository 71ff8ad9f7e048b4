-- Question  How does each policy carry more load, in a closed and in an open loop?
-- Method    The frozen point from 1 to 256 users who never pause, and from 2 to 20 requests a
--           second at even spacing, 5 s between the turns of a conversation. Two loops, two tables.
-- Seed      1 to 5
-- Run       kvroute run experiments/load_axis.lua --results experiments/results/load_axis
-- Takes     2 minutes on two cores
local lab = require("kvroute")
local measured = require("kvroute.measured")
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

-- Goodput here and as measured. The emulation was fitted to none of these.
local function beside(found)
  local rows, head = {}, { "load" }
  for _, policy in ipairs({ "round_robin", "least_outstanding", "session_affinity" }) do
    head[#head + 1], head[#head + 2] = policy .. "\nhere", "\nmeasured"
  end
  for _, pools in ipairs(found:places()) do
    local row, load = { pools[1].at.load }, pools[1].at.load
    for i = 1, 3 do
      row[2 * i], row[2 * i + 1] = pools[i]:shown("goodput"),
        measured.at_load(pools[i].policy, load) or false
    end
    rows[#rows + 1] = row
  end
  return lab.table.text({ title = "goodput beside the measured one (cells of 90 s there)",
    head = head, rows = rows })
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
    return study.matrices(found, { "goodput" }) .. "\n" .. beside(found) .. "\n"
      .. study.matrices(found, { "hit_rate", "redundant", "ttft_p99_ms", "spill_rate", "backlog" })
  end,
  figures = function(found)
    return {
      goodput = both(found, "goodput", "Goodput over load, working set 1, no skew"),
      cached = both(found, "hit_rate", "Prompt tokens served from the cache, over load"),
      redundant = both(found, "redundant",
        "Prompt tokens computed beyond the best policy's, over load"),
    }
  end,
}
