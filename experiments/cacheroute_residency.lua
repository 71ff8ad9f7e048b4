-- Question  Can the hit rate be computed instead of measured (appendix H of CacheRoute, where it
--           could not)?
-- Method    The six policies on 70B engines with 128 and 256 keys and with a quarter, a half and
--           all of the blocks ("reconstructed workload"), 30 requests a second, which none fails
--           at. Of each run the rate of every key at every engine is counted, and a characteristic
--           time (scripts/kvroute/residency.lua) gives what an LRU cache would hold. Four
--           predictors:
--             all known    sizes, variants of a key, and that the run began with empty caches
--             steady       the same, as if it had run for ever
--             keys alone   rates of keys, as if a key had one prefix instead of 42
--             random       as the first, of an engine that evicts at random
--           The error is predicted less simulated hit rate, in points, over all runs.
-- Seed      2
-- Run       kvroute run experiments/cacheroute_residency.lua --results
--             experiments/results/cacheroute_residency
-- Takes     half a minute on two cores
local cacheroute = require("kvroute.cacheroute")
local lab = require("kvroute")
local residency = require("kvroute.residency")

local RATE, WARMUP, MEASURED, REPLICAS = 30, 16000, 5000, 30
local TEMPLATE, CONTEXT, VARIANT, VARIANTS, UNIQUE, OUTPUT = 4400, 180, 2400, 42, 400, 48
local BLOCKS, BLOCK_TOKENS = { 10000, 20000, 40071 }, 16

-- When the middle of the measured requests came.
local AGE_S = (WARMUP + MEASURED / 2) / RATE

local predictors = {
  { name = "all known", age = AGE_S, variants = VARIANTS, presence = residency.lru },
  { name = "steady", variants = VARIANTS, presence = residency.lru },
  { name = "keys alone", age = AGE_S, variants = 1, presence = residency.lru },
  { name = "random", age = AGE_S, variants = VARIANTS, presence = residency.random },
}

-- Cached tokens and requests of one engine, from how often each key came there.
local function of_engine(counts, blocks, how)
  local things, requests = {}, 0
  for _, count in ipairs(counts) do
    if count > 0 then
      local rate = count / (WARMUP + MEASURED) * RATE
      things[#things + 1] = { rate = rate, size = CONTEXT }
      things[#things + 1] = { rate = rate / how.variants, size = VARIANT, count = how.variants }
      requests = requests + count
    end
  end
  local churn = requests / (WARMUP + MEASURED) * RATE * (UNIQUE + OUTPUT)
  local time = residency.time(blocks * BLOCK_TOKENS - TEMPLATE, things, churn, how.age,
    how.presence)
  local cached = TEMPLATE * requests
  for _, thing in ipairs(things) do
    local asked = thing.rate * (thing.count or 1) / RATE * (WARMUP + MEASURED)
    cached = cached + asked * thing.size * how.presence(thing.rate, time)
  end
  return cached, requests
end

local function predict(result, blocks, how)
  local cached, requests = 0, 0
  for replica = 1, REPLICAS do
    local counts = {}
    for i, by in ipairs(result.collected.visits.keys) do counts[i] = by[replica] end
    local own, asked = of_engine(counts, blocks, how)
    cached, requests = cached + own, requests + asked
  end
  return cached / requests / (result.prompt_tokens / result.success)
end

-- Share of pairs of runs that are in the same order by both.
local function agreement(predicted, simulated)
  local same, all = 0, 0
  for i = 1, #simulated do
    for j = 1, i - 1 do
      local there, here = simulated[i] - simulated[j], predicted[i] - predicted[j]
      all, same = all + 1, same + (there * here > 0 and 1 or 0)
    end
  end
  return same / all
end

local function judged(found)
  local rows = {}
  for i, how in ipairs(predictors) do
    local sizes, signed, ours, theirs = {}, {}, {}, {}
    for _, pool in ipairs(found.pools) do
      local result = pool.results[1]
      local at = #ours + 1
      ours[at], theirs[at] = predict(result, pool.at.blocks, how), result.hit_rate
      signed[at] = 100 * (ours[at] - theirs[at])
      sizes[at] = math.abs(signed[at])
    end
    rows[i] = { how.name, ("%.1f"):format(lab.stats.median(sizes)),
      ("%.1f"):format(lab.stats.quantile(sizes, 0.9)), ("%+.1f"):format(lab.stats.mean(signed)),
      ("%.0f %%"):format(100 * agreement(ours, theirs)) }
  end
  rows[#rows + 1] = { "the paper's", "14.3", "44.7", false, "\"below target\"" }
  return lab.table.text({ head = { "predictor", "error of\nhalf below", "of nine\ntenths below",
    "mean,\nwith sign", "pairs in\nthe same order" }, rows = rows,
    notes = { cacheroute.NOTES[1] } })
end

local function each(found)
  local rows, head = {}, { "keys, blocks" }
  for j, policy in ipairs(found:policies()) do
    head[j + 1] = cacheroute.titles[policy]
    local i = 0
    for _, keys in ipairs({ 128, 256 }) do
      for _, blocks in ipairs(BLOCKS) do
        i = i + 1
        local result = found:find(policy, { keys = keys, blocks = blocks }).results[1]
        rows[i] = rows[i] or { ("%d, %d"):format(keys, blocks) }
        rows[i][j + 1] = ("%.1f %.1f"):format(100 * result.hit_rate,
          100 * predict(result, blocks, predictors[1]))
      end
    end
  end
  return lab.table.text({ title = "Hit rate in percent: simulated, and predicted with all known",
    head = head, rows = rows })
end

return cacheroute.experiment {
  name = "cacheroute_residency",
  question = "can the hit rate be computed instead of measured?",
  axes = { { "keys", 128, 256 }, { "blocks", unpack(BLOCKS) } },
  fleet = function(at)
    return lab.fleet.simulated { profile = cacheroute.PROFILE_70B, replicas = REPLICAS,
      profile_set = { blocks = at.blocks } }
  end,
  ask = function(at) return { keys = at.keys, rate = RATE } end,
  collect = { "experiments/collect/visits.lua" },
  seeds = 1,
  report = function(found) return judged(found) .. "\n" .. each(found) end,
}
