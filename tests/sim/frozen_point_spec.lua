-- The frozen point of the study: working set 1, 32 users, conversations asked for alike and with
-- some of them hot; and that what does and does not count as cached changes little.
local study = require("sim.study")

local SEEDS = 5

local function point(skew, cache_generated)
  return function(options)
    options.workload.skew = skew
    options.profile.cache_generated = cache_generated
  end
end

local policies = {
  rr = { policy = "round_robin" },
  lo = { policy = "least_outstanding" },
  sa = { policy = "session_affinity" },
  pa = { policy = "prefix_affinity", spill = "load_min" },
  off = { policy = "prefix_affinity", spill = "off" },
}

local function measure(skew, cache_generated)
  local found = {}
  for name, scripts in pairs(policies) do
    found[name] = study.medians(scripts, SEEDS, point(skew, cache_generated))
  end
  return found
end

for _, cache_generated in ipairs({ true, false }) do
  local with = cache_generated and "with" or "without"
  describe("the frozen point " .. with .. " generated blocks cached", function()
    it("has the published goodput and hit rates without skew", function()
      local m = measure(0, cache_generated)
      study.within(m.rr.goodput, 2.9, 3.9, "round_robin")
      study.within(m.lo.goodput, 7.0, 8.8, "least_outstanding")
      study.within(m.sa.goodput, 8, 13, "session_affinity")
      study.within(m.pa.goodput, 13.5, 16.5, "prefix_affinity")
      assert.is_true(m.rr.goodput < m.lo.goodput and m.lo.goodput < m.sa.goodput
        and m.sa.goodput < m.pa.goodput)
      study.within(m.rr.hit_rate, 31, 40, "hit rate of round_robin")
      study.within(m.lo.hit_rate, 52, 60, "hit rate of least_outstanding")
      study.within(m.sa.hit_rate, 75, 80, "hit rate of session_affinity")
      study.within(m.pa.hit_rate, 75, 80, "hit rate of prefix_affinity")
      study.within(m.sa.hit_rate - m.pa.hit_rate, -2.5, 2.5, "difference of the two")
      study.within(m.pa.spill_rate, 0.1, 3, "spill rate")
      study.within(m.pa.busiest, 20, 24, "busiest share")
      study.within(m.pa.honoured, 97, 100, "honoured belief")
      assert.is_true(m.pa.goodput > m.off.goodput)
    end)

    it("has the published order with skew", function()
      local m = measure(1.4, cache_generated)
      assert.is_true(m.pa.goodput > 1.8 * m.sa.goodput)
      assert.is_true(m.lo.goodput > 1.3 * m.sa.goodput)
      study.within(m.sa.goodput / m.rr.goodput, 0.4, 1.5, "session_affinity over round_robin")
      study.within(m.pa.goodput, 28, 34, "prefix_affinity")
      study.within(m.lo.goodput, 18.9, 23.5, "least_outstanding")
      assert.is_true(m.pa.goodput > m.off.goodput)
      study.within(m.pa.busiest, 20, 24, "busiest share")
    end)
  end)
end

describe("an open loop", function()
  local function at(rate)
    return function(options)
      options.workload.arrivals, options.workload.rate = 1, rate
      options.duration_ms = 150000
    end
  end

  it("is lost without the cache at 8 requests a second, and kept with it", function()
    assert.is_true(study.medians(policies.rr, 3, at(8)).goodput < 0.5)
    assert.is_true(study.medians(policies.lo, 3, at(8)).goodput < 0.5)
    assert.is_true(study.medians(policies.sa, 5, at(8)).goodput >= 6.5)
  end)

  it("makes a rule on few requests misfire at low load", function()
    assert.is_true(study.medians(policies.pa, 3, at(6)).spill_rate >= 8)
  end)
end)
