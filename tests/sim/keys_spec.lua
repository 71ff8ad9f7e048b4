-- Keys with variants on thirty 70B engines ("reconstructed workload": its paper does not state the
-- request's shape). Shorter than the report's runs, so the bands are wider.
local study = require("sim.study")

local function at(rate)
  return function(options)
    assert(require("kvroute.ffi").simulator().kvr_sim_use_profile(options, "h100x2-70b-fp8") == 0)
    options.workload.kind, options.workload.arrivals = 1, 1
    options.workload.rate, options.workload.gap_cv = rate, 1
    options.warmup_ms, options.duration_ms = 0, 0
    options.warmup_requests, options.requests, options.drain_ms = 16000, 3000, 30000
    options.slo_ttft_ms = 3500
    options.index_nodes, options.ring_vnodes = 0, 4
  end
end

describe("thirty 70B engines under 128 keys", function()
  it("find as much in their caches as was published", function()
    local flat = study.run({ policy = "p2c" }, at(60))
    local bounded = study.run({ policy = "bounded_session_affinity" }, at(60))
    local sticky = study.run({ policy = "session_affinity" }, at(20))
    study.within(100 * flat.hit_rate, 58, 68, "hit rate of two choices")
    study.within(100 * bounded.hit_rate, 70, 82, "hit rate of the bounded ring")
    study.within(100 * sticky.hit_rate, 84, 92, "hit rate of the ring")
    assert.is_true(flat.imbalance < 1.2 and sticky.imbalance > 2)
  end)

  it("saturate in the published order", function()
    assert.is_true(study.run({ policy = "session_affinity" }, at(80)).ttft_p99_all > 3500)
    assert.is_true(study.run({ policy = "p2c" }, at(100)).ttft_p99_all > 3500)
    assert.is_true(study.run({ policy = "bounded_session_affinity" }, at(60)).ttft_p99_all < 3500)
  end)
end)
