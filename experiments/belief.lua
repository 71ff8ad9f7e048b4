-- Question  What do the limits of the index buy: how long beliefs last, and how many there may be?
-- Method    Over the working sets, no skew: the study's index (57 s, 16,311 blocks), each limit
--           alone, a shorter life, and none at all. Honoured is the share of believed tokens that
--           the engine had.
-- Seed      1 to 5
-- Run       kvroute run experiments/belief.lua --results experiments/results/belief
-- Takes     30 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local set = lab.settings { working_sets = study.working_sets }

local indexes = {
  ["57 s and cap"] = { index_ttl_ms = 57000, index_nodes = 16311 },
  ["20 s and cap"] = { index_ttl_ms = 20000, index_nodes = 16311 },
  ["57 s, no cap"] = { index_ttl_ms = 57000 },
  ["cap, no end"] = { index_ttl_ms = -1, index_nodes = 16311 },
  ["no limit"] = { index_ttl_ms = -1 },
}
local names = { "57 s and cap", "20 s and cap", "57 s, no cap", "cap, no end", "no limit" }

local function lines(found, metric)
  local figure = lab.figure.groups(found, metric, "working_set",
    "working set / KV cache of the fleet")
  -- A series an index instead of a policy.
  figure.series = {}
  for i, name in ipairs(names) do
    figure.series[i] = { name = name,
      values = lab.figure.groups(found, metric, "working_set", "",
        { at = { index = name } }).series[1].values }
  end
  figure.kind = "bars"
  return figure
end

return study.experiment {
  name = "belief",
  question = "what do the limits of the index buy?",
  axes = { { "working_set", unpack(set.working_sets) }, { "index", unpack(names) } },
  ask = function(at) return { working_set = at.working_set } end,
  router = function(at) return indexes[at.index] end,
  policies = { "prefix_affinity" },
  seeds = 5,
  show = { metrics = { "goodput", "honoured", "spill_rate", "cold_share", "hit_rate" } },
  report = function(found)
    local rows = {}
    for i, pool in ipairs(found.pools) do
      rows[i] = { pool.place, pool:shown("goodput", true), pool:shown("honoured"),
        pool:shown("spill_rate"), pool:shown("cold_share"), pool:shown("hit_rate"),
        pool:median(function(result) return result.index_blocks end, "%.0f") }
    end
    return lab.table.text({ rows = rows, head = { "working_set, index", "goodput\n/s",
      "belief\nhonoured", "spilled", "cold", "cached", "blocks\nat the end" } })
  end,
  figures = function(found)
    local goodput, honoured = lines(found, "goodput"), lines(found, "honoured")
    goodput.title = "Goodput of prefix affinity by the limits of its index, no skew"
    honoured.title = "Believed tokens that the engine had, by the limits of the index"
    return { goodput = goodput, honoured = honoured }
  end,
}
