-- Question  Does routing by prefix keep its advantage on recorded traffic, whose prompts all begin
--           alike and come at their own times?
-- Method    Half an hour of Mooncake's conversation trace (experiments/data), its arrivals spread
--           evenly over the 3 s that they were rounded to, replayed at twice its pace on eight
--           emulated H100. One endless cache would serve 35 % of its prompt tokens, one LRU cache
--           of the fleet's size 16 %, eight endless ones in rotation 12 %.
-- Seed      of the engines' jitter and the ring; the requests are the recording's
-- Run       kvroute run experiments/replay_mooncake.lua
-- Takes     10 seconds on two cores
local lab = require("kvroute")

local set = lab.settings { replicas = 8, pace = 2, spread = "even" }

return lab.experiment {
  name = "replay_mooncake",
  question = "does routing by prefix pay on recorded traffic?",

  fleet = lab.fleet.simulated { profile = "h100-8b-bf16", replicas = set.replicas },
  workload = lab.workload.trace {
    format = "mooncake",
    files = "experiments/data/mooncake-conversation/conversation_trace.first.jsonl.gz",
    import = { spread = set.spread },
    time_scale = 1 / set.pace,
  },
  policies = { "round_robin", "least_outstanding", "prefix_affinity" },

  measure = { seconds = 1770 / set.pace, warmup_s = 100 },
  slo = { ttft_ms = 2000, itl_ms = 50 },
  seeds = 3,
  ignore = { "cold opening", "fleet slowed" }, -- the load of a recording is never even

  show = {
    metrics = { "goodput", "hit_rate", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "spill_rate" },
    baseline = "round_robin",
  },
}
