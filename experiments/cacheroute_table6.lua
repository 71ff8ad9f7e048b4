-- Question  Which workload does the paper's own description give (Table 6 of CacheRoute), and does
--           a plan help it?
-- Method    128,824 keys whose rates are the quantiles of a lognormal distribution with the paper's
--           Gini coefficient, none above 0.29 % of the traffic; prompts of 1,200 tokens as it has
--           them: 360 for all, 180 of the key, then what is one of three of the key (so that two
--           requests in a row differ there in 67 % of the cases), then the rest, of which 120 are
--           the current turn. *Alone*: every request stands alone; 420 retrieved, 240 new, answers
--           of 150. *Threads*: half of them have one turn, the others 4.3 on average, 30 s apart;
--           192 retrieved, and what earlier turns said (120 each) and were answered (48): the paper
--           does not say how its 900 tokens fall on these. *Apart*: the lengths of threads, but
--           what earlier turns said is new each time, so that only the threads differ. The figures
--           of the first table are of the true shares and of what is drawn. Then 70B engines under
--           all three, all keys or the 128 most popular.
-- Seed      2 to 4
-- Run       kvroute run experiments/cacheroute_table6.lua --results
--             experiments/results/cacheroute_table6
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local key_gaps = require("kvroute.key_gaps")
local key_shares = require("kvroute.key_shares")
local lab = require("kvroute")

local ALL = 128824
local TEMPLATE, CONTEXT, VARIANTS, TURN = 360, 180, 3, 120
local HISTORY = 370 -- what earlier turns said and were answered, on average of all requests
local RATES = { 100, 300 }
local APART = 14 -- gaps between the starts of a key's threads, for the paper's variation

local shapes = {
  alone = { variant_tokens = 420, unique_tokens = 240, output_tokens = 150 },
  apart = { variant_tokens = 192, unique_tokens = TURN + HISTORY, output_tokens = 48 },
  threads = { variant_tokens = 192, unique_tokens = TURN, output_tokens = 48,
    thread_more = 0.493, thread_end = 0.3, thread_gap_ms = 30000 },
}

local function percent(value) return ("%.1f %%"):format(100 * value) end

local function properties(found)
  local function spec(requests, keys)
    local pool = found:find("p2c", { requests = requests, keys = keys, rate = RATES[1] })
    return pool.cells[1].spec, pool.results[1].prompt_tokens / pool.results[1].success
  end
  local alone, prompt_alone = spec("alone", ALL)
  local threads, prompt = spec("threads", ALL)
  local shares = key_shares.of(alone)
  local turns, several = key_gaps.turns(threads, 100000)
  local function busiest(requests) -- of the 128 keys, over as many requests as a run has
    return ("%.2f"):format(lab.stats.median(key_gaps.variations((spec(requests, 128)), 21000)))
  end
  local rows = {
    { "distinct keys", "128,824", tostring(#shares), "the same" },
    { "Gini coefficient of traffic", "0.756", ("%.3f"):format(key_shares.gini(shares)),
      "the same" },
    { "share of the top key", "<0.3 %", ("%.2f %%"):format(100 * key_shares.top(shares, 0)),
      "the same" },
    { "share of the top 4 %", "47 %", percent(key_shares.top(shares, 0.04)), "the same" },
    { "mean tokens of a prompt", "1.2 K", ("%.0f"):format(prompt_alone),
      ("%.0f"):format(prompt) },
    { "of these before the current turn", "90 %", percent(1 - TURN / prompt_alone),
      percent(1 - TURN / prompt) },
    { "the key's own and always the same", "180, 15 %", percent(CONTEXT / prompt_alone),
      percent(CONTEXT / prompt) },
    { "pairs that differ as retrieved", "67 %", percent(1 - 1 / VARIANTS), "the same" },
    { "requests of several turns", "80.8 %", "none", percent(several) },
    { "turns of a thread", "2.64", "1", ("%.2f"):format(turns) },
    { "median variation of a key's gaps", "1.93", "1",
      ("%.2f *"):format(key_gaps.variation_alone(threads, APART, 200000)) },
    { ("... of 128 keys @%d/s"):format(RATES[1]), "-", busiest("alone"), busiest("threads") },
  }
  return lab.table.text({ head = { "property", "the paper", "alone", "threads" }, rows = rows,
    notes = {
      ("* of a key whose threads begin %d gaps of 30 s apart: every 7 minutes."):format(APART),
      "Threads of busier keys overlap, and the rate of the paper's median key is not known.",
    } })
end

local function routed(found)
  local rows = {}
  for _, requests in ipairs({ "alone", "apart", "threads" }) do
    for _, keys in ipairs({ ALL, 128 }) do
      for _, policy in ipairs(cacheroute.two) do
        local active = keys == ALL and "all" or keys
        local row = { ("%s, %s keys, %s"):format(requests, active, cacheroute.titles[policy]) }
        for i, rate in ipairs(RATES) do
          local pool = found:find(policy, { requests = requests, keys = keys, rate = rate })
          row[2 * i] = pool:shown("hit_rate")
          row[2 * i + 1] = pool:shown("ttft_p99_all_ms", true) or "never"
        end
        rows[#rows + 1] = row
      end
    end
  end
  return lab.table.text({ title = "Such requests on thirty emulated 70B engines", rows = rows,
    head = { "requests, active keys, policy", "hit rate\n@100/s", "TTFT p99\n@100/s",
      "hit rate\n@300/s", "TTFT p99\n@300/s" } })
end

return cacheroute.experiment {
  name = "cacheroute_table6",
  question = "which workload does the paper's description give, and does a plan help it?",
  axes = { { "requests", "alone", "apart", "threads" }, { "keys", ALL, 128 } },
  profile = cacheroute.PROFILE_70B,
  rates = RATES, all = true,
  policies = cacheroute.two,
  ask = function(at)
    local out = { keys = at.keys, population = ALL, template_tokens = TEMPLATE,
      context_tokens = CONTEXT, variants = VARIANTS }
    for name, value in pairs(shapes[at.requests]) do out[name] = value end
    return out
  end,
  -- A slot is 180 tokens here: one cache has room for the prefixes of 500 keys and more.
  router = function(at) return { plan_slots = at.keys == ALL and 500 or cacheroute.SLOTS } end,
  -- As everywhere; and a thread's tenth turn may well be asked in one half of a run only.
  ignore = { "past saturation", "failures", "fleet slowed", "cold opening",
    "fractional visit periods" },
  report = function(found) return properties(found) .. "\n" .. routed(found) end,
}
