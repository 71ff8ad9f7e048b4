-- Question  Does a shadow replay tell a workload that gains from a plan of routing keys from one
--           that loses by it, before anybody turns it on?
-- Method    Records traffic of power of two choices in three cases of CacheRoute's reconstruction:
--           70b, where prompts share much (Table 1), 32b, where 11 % of a prompt is the key's and
--           the rest new ("lose regime"), and tie, the same with 20 %. `kvroute gate` then replays
--           the rows; see "Gate" in experiments/README.md, which has the commands and what they
--           answered.
-- Seed      1
-- Run       kvroute run experiments/gate.lua --set case=70b --rows --out rows70b
-- Takes     a few seconds each
local lab = require("kvroute")

local set = lab.settings { case = "70b", share = 1 } -- of the fleet, its keys and its traffic

local cases = {
  ["70b"] = { profile = "h100x2-70b-fp8", rate = 50, requests = 21000, workload = { keys = 128 } },
  ["32b"] = { profile = "h100x2-32b-bf16", rate = 15, requests = 4000, workload = {
    keys = 300, template_tokens = 110, context_tokens = 0, variant_tokens = 1090, variants = 1,
    unique_tokens = 8800, output_tokens = 128,
  } },
  tie = { profile = "h100x2-32b-bf16", rate = 15, requests = 4000, workload = {
    keys = 300, template_tokens = 110, context_tokens = 0, variant_tokens = 2000, variants = 1,
    unique_tokens = 7900, output_tokens = 128,
  } },
}
local case = cases[set.case] or error("--set case is 70b, 32b or tie", 0)
local function part(value) return math.max(1, math.floor(value * set.share + 0.5)) end

case.workload.keys = part(case.workload.keys)
case.workload.gap_cv, case.workload.rate = 1, case.rate * set.share

return lab.experiment {
  name = "gate",
  question = "traffic to replay, with rows (--rows)",
  fleet = lab.fleet.simulated { profile = case.profile, replicas = part(30) },
  router = { row_blocks = true },
  workload = lab.workload.keys(case.workload),
  policies = { "p2c" },
  measure = { warmup_requests = 0, requests = part(case.requests), drain_s = 30 },
  slo = { ttft_ms = 3500 },
  ignore = { "past saturation", "failures", "fleet slowed", "cold opening" },
  seeds = 1,
}
