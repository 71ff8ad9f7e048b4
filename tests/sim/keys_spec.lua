-- Keys with variants on thirty 70B engines ("reconstructed workload": its paper does not state the
-- request's shape). Shorter than the report's runs, so the bands are wider.
local study = require("sim.study")

local function at(rate, change)
  return function(options)
    assert(require("kvroute.ffi").simulator().kvr_sim_use_profile(options, "h100x2-70b-fp8") == 0)
    options.workload.kind, options.workload.arrivals = 1, 1
    options.workload.rate, options.workload.gap_cv = rate, 1
    options.warmup_ms, options.duration_ms = 0, 0
    options.warmup_requests, options.requests, options.drain_ms = 16000, 3000, 30000
    options.slo_ttft_ms = 3500
    options.index_nodes, options.ring_vnodes = 0, 4
    if change then change(options) end
  end
end

describe("thirty 70B engines under 128 keys", function()
  -- Five slots for each engine, which are enough for all keys, and the rates they really have.
  local function planned(options)
    options.plan_slots, options.plan_at_start = 5, 1
  end

  it("find as much in their caches as was published", function()
    local planned_60 = study.run({ policy = "cacheroute" }, at(60, planned))
    local flat = study.run({ policy = "p2c" }, at(60))
    local bounded = study.run({ policy = "bounded_session_affinity" }, at(60))
    local sticky = study.run({ policy = "session_affinity" }, at(20))
    study.within(100 * flat.hit_rate, 58, 68, "hit rate of two choices")
    study.within(100 * bounded.hit_rate, 70, 82, "hit rate of the bounded ring")
    study.within(100 * sticky.hit_rate, 84, 92, "hit rate of the ring")
    study.within(100 * planned_60.hit_rate, 90, 95, "hit rate of the plan")
    assert.is_true(flat.imbalance < 1.2 and sticky.imbalance > 2)
    assert.is_true(planned_60.imbalance < 1.5)
  end)

  it("saturate in the published order", function()
    assert.is_true(study.run({ policy = "cacheroute" }, at(140, planned)).ttft_p99_all < 3500)
    assert.is_true(study.run({ policy = "session_affinity" }, at(80)).ttft_p99_all > 3500)
    assert.is_true(study.run({ policy = "p2c" }, at(100)).ttft_p99_all > 3500)
    assert.is_true(study.run({ policy = "bounded_session_affinity" }, at(60)).ttft_p99_all < 3500)
  end)

  it("learn their plan from what comes", function()
    local function learnt(options)
      options.plan_slots, options.plan_interval_ms = 5, 150000
      options.requests = 1000
    end
    local once = study.run({ policy = "cacheroute" }, at(60, learnt))
    -- One plan by then: at 150 s of 283 s.
    assert.is_true(100 * once.hit_rate > 85, 100 * once.hit_rate)
    local again = study.run({ policy = "cacheroute" }, at(60, learnt))
    assert.equal(once.hash, again.hash)
    -- Without a plan the same policy is two choices.
    local flat = study.run({ policy = "cacheroute" }, at(60))
    study.within(100 * flat.hit_rate, 58, 68, "hit rate without a plan")
  end)

  it("have a plan from the start under blocks of recorded gaps, too", function()
    local ffi = require("kvroute.ffi")
    local times = ffi.new("double[4]", { 0, 1, 4, 5 })
    local run = study.run({ policy = "cacheroute" }, at(60, function(options)
      planned(options)
      options.workload.arrivals, options.workload.times_ms = 3, times
      options.workload.times_len = 4
      options.warmup_requests, options.requests = 0, 100
    end))
    assert.equal(100, run.requests)
    assert.is_true(run.cold == 0 and run.fallbacks == 0)
  end)

  it("plan with all that goes beyond the paper, equally each time, and add up", function()
    local function beyond(options)
      options.replicas = 6
      options.warmup_requests, options.requests = 0, 1200
      local w = options.workload
      w.keys, w.rate, w.variants, w.length_sigma = 24, 20, 2, 0.5
      w.drift_sigma, w.drift_requests = 0.4, 100
      options.plan_tokens, options.plan_residency_s, options.plan_phi = 60000, 30, 1
      options.plan_at_start, options.plan_interval_ms, options.plan_keep = 1, 5000, 1
      options.plan_theta, options.plan_move_budget, options.plan_loyalty = 0.1, 0.2, 1.2
      options.plan_life_s, options.plan_handover, options.plan_handover_s = 5, 3, 4
    end
    local once = study.run({ policy = "cacheroute" }, at(20, beyond))
    study.run({ policy = "cacheroute" }, at(20, function(options)
      beyond(options)
      options.verify, options.profile.blocks, options.requests = 1, 2000, 150
      options.plan_interval_ms, options.workload.drift_requests = 500, 10
      options.workload.template_tokens = 0
    end))
    local again = study.run({ policy = "cacheroute" }, at(20, beyond))
    assert.equal(1200, once.success)
    assert.equal(once.hash, again.hash)
    local at_once = study.run({ policy = "cacheroute" }, at(20, function(options)
      beyond(options)
      options.plan_handover, options.plan_handover_s = 0, 0
    end))
    assert.not_equal(once.hash, at_once.hash)
  end)

  it("come in threads, whose turns find what was said before where it was said", function()
    local function threads(more)
      return function(options)
        options.replicas, options.warmup_requests, options.requests = 6, 1000, 2000
        local w = options.workload
        w.keys, w.rate, w.variants, w.unique_tokens, w.thread_more = 48, 8, 1, 1200, more
        w.thread_gap_ms = 5000
      end
    end
    local function hit(policy, more)
      return 100 * study.run({ policy = policy }, at(20, threads(more))).hit_rate
    end
    -- A turn's prompt is longer, and of what is new in it more has been said before.
    assert.is_true(hit("session_affinity", 0.493) > hit("session_affinity", 0) + 3)
    assert.is_true(hit("session_affinity", 0.493) > hit("p2c", 0.493) + 10)
    local once = study.run({ policy = "p2c" }, at(20, threads(0.493)))
    assert.equal(2000, once.success)
    assert.equal(once.hash, study.run({ policy = "p2c" }, at(20, threads(0.493))).hash)
    assert.not_equal(once.hash, study.run({ policy = "p2c" }, at(20, threads(0.4))).hash)
  end)

  it("refuse a plan that nothing can be made from", function()
    local function refuses(what, change)
      local ok, why = pcall(study.run, { policy = "cacheroute" }, at(60, change))
      assert.is_false(ok)
      assert.truthy(why:find(what, 1, true), why)
    end
    refuses("plan_slots needs", function(options) options.plan_slots = 5 end)
    refuses("needs plan_slots", function(options) options.plan_at_start = 1 end)
    refuses("needs plan_slots", function(options) options.plan_q_cap = 1 end)
    refuses("plan_requests is for a list", function(options) options.plan_requests = 1 end)
    refuses("1 or more", function(options)
      options.plan_slots, options.plan_interval_ms = 5, 1e-3
    end)
    local function refuses_planned(what, name, value)
      refuses(what, function(options)
        options.plan_slots, options.plan_at_start, options[name] = 5, 1, value
      end)
    end
    refuses_planned("need plan_keep", "plan_theta", 0.1)
    refuses_planned("need plan_keep", "plan_loyalty", 2)
    refuses_planned("needs plan_tokens", "plan_residency_s", 1)
    refuses_planned("2 or more", "plan_handover", 1)
    refuses_planned("plan_move_budget is 2", "plan_move_budget", 2)
    refuses("keys that come at a rate", function(options)
      options.plan_slots, options.plan_at_start, options.workload.kind = 5, 1, 0
    end)
    refuses("keys that come at a rate", function(options)
      options.plan_slots, options.plan_at_start, options.workload.arrivals = 5, 1, 0
    end)
  end)
end)
