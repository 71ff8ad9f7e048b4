-- What is said of the threads of a workload, and of the gaps between a key's requests.
local key_gaps = require("kvroute.key_gaps")
local fleet = require("kvroute.fleet")
local stats = require("kvroute.stats")
local workload = require("kvroute.workload")

local function spec(options)
  options.gap_cv = options.gap_cv or 1
  return { fleet = fleet.simulated { profile = "h100-8b-bf16" }, router = {}, seed = 3,
    workload = workload.keys(options), measure = { requests = 1 }, slo = {} }
end

local function near(value, wanted, part)
  assert.is_true(math.abs(value / wanted - 1) < part, ("%g for %g"):format(value, wanted))
end

describe("kvroute.key_gaps", function()
  it("counts the turns of threads", function()
    local mean, several = key_gaps.turns(spec { rate = 10, thread_more = 0.5, thread_end = 0.25 },
      20000)
    near(mean, 3, 0.03) -- 1 + 0.5 / 0.25
    near(several, 5 / 6, 0.01) -- all but the half that is one of three
  end)

  it("finds the variation of keys that come at random, evenly, or in threads", function()
    local random = key_gaps.variations(spec { rate = 10, keys = 16 }, 20000)
    assert.equal(16, #random)
    near(stats.median(random), 1, 0.05)
    local even = key_gaps.variations(spec { rate = 10, keys = 1, gap_cv = 0 }, 1000)
    assert.is_true(even[1] < 1e-6)
    local threads = spec { rate = 100, thread_more = 0.493, thread_gap_ms = 30000 }
    near(key_gaps.variation_alone(threads, 14, 100000), 1.93, 0.03)
    assert.is_true(stats.median(key_gaps.variations(threads, 20000)) < 1.2) -- they overlap
  end)

  it("says nothing of keys that hardly come", function()
    assert.same({}, key_gaps.variations(spec { rate = 10, keys = 100 }, 200))
  end)
end)
