-- Question  Does it pay to send a request where its prompt's start is cached?
-- Method    Five emulated RTX 3090 and 32 users who never pause: conversations of four turns, whose
--           text is about 2.5 times what the fleet can cache. Once all conversations are asked for
--           alike, once a few of them are hot. Five policies, 300 simulated seconds.
-- Seed      1 to 3
-- Run       kvroute run experiments/hello.lua
-- Takes     3 seconds on two cores
local lab = require("kvroute")

local set = lab.settings { users = 32, skews = { 0, 1.4 } }

return lab.experiment {
  name = "hello",
  question = "does it pay to send a request where its prompt's start is cached?",
  axes = { { "skew", unpack(set.skews) } },

  fleet = lab.fleet.simulated { profile = "rtx3090-8b-awq", replicas = 5 },
  router = lab.router.study, -- an index as small as this fleet's cache; leave it out for another
  workload = function(at)
    return lab.workload.kvroute { working_set = 1, skew = at.skew, users = set.users }
  end,
  policies = {
    "round_robin",
    "least_outstanding",
    "session_affinity",
    { "prefix_affinity", spill = "off" },
    "prefix_affinity",
  },

  measure = { seconds = 300, warmup_s = 50 },
  -- Half of the first tokens are cached ones, within 60 ms, and half are not, after 400: between
  -- the two, the median of a half of the run jumps and means no trend.
  ignore = { "cold opening", "fleet slowed" },
  slo = { ttft_ms = 990, itl_ms = 24 },
  seeds = 3,

  show = {
    metrics = { "goodput", "hit_rate", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms", "spill_rate" },
    baseline = "round_robin",
  },
}
