-- Settings of the router, for an experiment's `router`.
local schema = require("kvroute.schema")

local M = {}

---@class kvr.RouterSettings zeros are the router's own defaults
---@field index_ttl_ms number? beliefs age so fast; < 0 never
---@field index_nodes number? most blocks of belief
---@field index_nodes_per_replica number?
---@field index_memory_mb number?
---@field index_block_bytes number? 64
---@field index_wide_after number? bytes of a prompt after which blocks are wide; 0 off
---@field index_replies number? 1: beliefs hold what was generated, too
---@field ring_vnodes number? 128
---@field capacity number? most in flight on a replica
---@field moves number? 2
---@field requests_max number?
---@field queue_max number? 0 off
---@field queue_shortest number?
---@field queue_deadline_ms number?
---@field health_interval_ms number?
---@field health_ramp_ms number?
---@field row_blocks boolean? rows have their block chains, so that they can be replayed
---@field canary_share number?
---@field plan_slots number? copies of routing keys for each replica, on average; 0 no plan.
---  Plans are for simulated fleets only
---@field plan_at_start boolean? from the true rates of workload.keys
---@field plan_requests number? from the rates of so many first requests of workload.trace
---@field plan_q_cap number? most requests a second of one copy
---@field plan_interval_ms number? plan anew each time, by what the router has counted
---@field plan_true boolean? or by the true rates and sizes of workload.keys
---@field plan_phi number? most load of one copy over the mean of replicas
---@field plan_tokens number? of prefixes for each replica, on average: admission by size
---@field plan_residency_s number? of an idle prefix in a cache; hotter keys are worth less
---@field plan_keep boolean? a plan goes on from the last
---@field plan_theta number? moves beyond 1 + theta times the mean ...
---@field plan_move_budget number? ... of so much of all rate
---@field plan_loyalty number? an admitted key counts so many times its rate at admission
---@field plan_life_s number? install only what pays within this time
---@field plan_handover number? moved keys are warmed by one request in so many
---@field plan_handover_s number? at most so long; 60
local types = {
  index_ttl_ms = "number?", index_nodes = "count?", index_nodes_per_replica = "count?",
  index_memory_mb = "number?", index_block_bytes = "count?", index_wide_after = "count?",
  index_replies = "number|boolean?", ring_vnodes = "count?", capacity = "count?", moves = "count?",
  requests_max = "count?", queue_max = "count?", queue_shortest = "number|boolean?",
  queue_deadline_ms = "number?", health_interval_ms = "number?", health_ramp_ms = "number?",
  row_blocks = "number|boolean?", canary_share = "number?", plan_slots = "count?",
  plan_at_start = "number|boolean?", plan_requests = "count?", plan_q_cap = "number?",
  plan_interval_ms = "number?", plan_true = "number|boolean?", plan_phi = "number?",
  plan_tokens = "number?", plan_residency_s = "number?", plan_keep = "number|boolean?",
  plan_theta = "number?", plan_move_budget = "number?", plan_loyalty = "number?",
  plan_life_s = "number?", plan_handover = "count?", plan_handover_s = "number?",
}

---@param settings kvr.RouterSettings
---@return kvr.RouterSettings
function M.check(settings)
  return schema.check("router", settings, types)
end

---As the study of five RTX 3090 had it: beliefs last 57 s, 16,311 blocks at most.
---@type kvr.RouterSettings
M.study = { index_ttl_ms = 57000, index_nodes = 16311 }

return M
