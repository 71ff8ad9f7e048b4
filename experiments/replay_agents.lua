-- Question  What do coding agents' sessions, with their long and growing prompts, ask of routing?
-- Method    350 recorded sessions (experiments/data) in closed loop: a request comes when the
--           answer before it is there and its recorded think time, at most a minute, has passed.
--           Sessions begin 90 s apart on average, on eight emulated H100; the first half hour of
--           three does not count. Prompts over 120,000 tokens, which the model does not take, are
--           left out; equal tools and system prompts are taken to be shared. An endless cache would
--           serve 96 % of a session's tokens; its median prompt fills a quarter of a replica's.
-- Seed      of the engines' jitter and the ring; requests and starts are the same
-- Run       kvroute run experiments/replay_agents.lua
-- Takes     1 minute on two cores
local lab = require("kvroute")

local set = lab.settings { replicas = 8, start_gap_ms = 90000, hours = 3 }

return lab.experiment {
  name = "replay_agents",
  question = "what do coding agents' sessions ask of routing?",

  fleet = lab.fleet.simulated { profile = "h100-8b-bf16", replicas = set.replicas },
  router = { index_ttl_ms = 1800000, index_memory_mb = 512 },
  workload = lab.workload.trace {
    format = "agentic",
    files = "experiments/data/kv-cache-tester-agentic/sessions.odd.jsonl.gz",
    import = {
      start_gap_ms = set.start_gap_ms, max_input_tokens = 120000, max_think_ms = 60000,
      shared_heads = true,
    },
    closed = true,
  },
  policies = {
    "round_robin",
    "least_outstanding",
    "session_affinity",
    { "prefix_affinity", spill = "off" },
    "prefix_affinity",
  },

  measure = { seconds = 3600 * set.hours, warmup_s = 1800 },
  slo = { ttft_ms = 5000, itl_ms = 50 },
  seeds = 3,
  ignore = { "cold opening", "fleet slowed" }, -- the load of a recording is never even

  show = {
    metrics = { "goodput", "hit_rate", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "spill_rate" },
    baseline = "session_affinity",
  },
}
