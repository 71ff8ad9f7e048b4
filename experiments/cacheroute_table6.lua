-- Question  Which workload does the paper's own description give (Table 6 of CacheRoute), and does
--           a plan help it?
-- Method    128,824 keys whose rates are the quantiles of a lognormal distribution with the paper's
--           Gini coefficient, none above 0.29 % of the traffic; prompts of 1,200 tokens as it has
--           them: 360 for all, 180 of the key, 420 that are one of three of the key (so that two
--           requests in a row differ there in 67 % of the cases), 240 new. Every request stands
--           alone: threads are not made. The figures of the first table are of the true shares.
--           Then 70B engines under them, all keys or the 128 most popular.
-- Seed      2 and 3
-- Run       kvroute run experiments/cacheroute_table6.lua --results
--             experiments/results/cacheroute_table6
-- Takes     half a minute on two cores
local cacheroute = require("kvroute.cacheroute")
local key_shares = require("kvroute.key_shares")
local lab = require("kvroute")

local ALL = 128824
local TEMPLATE, CONTEXT, RETRIEVED, VARIANTS, NEW, TURN = 360, 180, 420, 3, 240, 120
local RATES = { 100, 300 }

local function percent(value) return ("%.1f %%"):format(100 * value) end

local function properties(found)
  local pool = found:find("p2c", { keys = ALL, rate = RATES[1] })
  local shares, r = key_shares.of(pool.cells[1].spec), pool.results[1]
  local prompt = r.prompt_tokens / r.success
  return lab.table.text({ head = { "property", "the paper", "here" }, rows = {
    { "distinct keys", "128,824", tostring(#shares) },
    { "Gini coefficient of traffic", "0.756", ("%.3f"):format(key_shares.gini(shares)) },
    { "share of the top key", "<0.3 %", ("%.2f %%"):format(100 * key_shares.top(shares, 0)) },
    { "share of the top 4 %", "47 %", percent(key_shares.top(shares, 0.04)) },
    { "mean tokens of a prompt", "1.2 K", ("%.0f"):format(prompt) },
    { "of these before the current turn", "90 %", percent(1 - TURN / prompt) },
    { "of these the key's own and always the same", "180, 15 %",
      ("%d, %s"):format(CONTEXT, percent(CONTEXT / prompt)) },
    { "pairs that differ at the retrieved block", "67 %", percent(1 - 1 / VARIANTS) },
    { "requests of several turns, turns of a thread", "80.8 %, 2.64", "none: each stands alone" },
    { "median variation of a key's gaps", "1.93", "1: Poisson" },
  } })
end

local function routed(found)
  local rows = {}
  for _, keys in ipairs({ ALL, 128 }) do
    for _, policy in ipairs(cacheroute.two) do
      local active = keys == ALL and "all" or keys
      local row = { ("%s keys, %s"):format(active, cacheroute.titles[policy]) }
      for i, rate in ipairs(RATES) do
        local pool = found:find(policy, { keys = keys, rate = rate })
        row[2 * i] = pool:shown("hit_rate")
        row[2 * i + 1] = pool:shown("ttft_p99_all_ms") or "never"
      end
      rows[#rows + 1] = row
    end
  end
  return lab.table.text({ title = "Such requests on thirty 70B engines", rows = rows,
    head = { "active keys, policy", "hit rate\n@100/s", "TTFT p99\n@100/s", "hit rate\n@300/s",
      "TTFT p99\n@300/s" } })
end

return cacheroute.experiment {
  name = "cacheroute_table6",
  question = "which workload does the paper's description give, and does a plan help it?",
  axes = { { "keys", ALL, 128 } },
  profile = cacheroute.PROFILE_70B,
  rates = RATES, all = true,
  policies = cacheroute.two,
  ask = function(at)
    return { keys = at.keys, population = ALL, template_tokens = TEMPLATE,
      context_tokens = CONTEXT, variant_tokens = RETRIEVED, variants = VARIANTS,
      unique_tokens = NEW, output_tokens = 150 }
  end,
  -- A slot is 180 tokens here: one cache has room for the prefixes of 500 keys and more.
  router = function(at) return { plan_slots = at.keys == ALL and 500 or cacheroute.SLOTS } end,
  seeds = 2,
  report = function(found) return properties(found) .. "\n" .. routed(found) end,
}
