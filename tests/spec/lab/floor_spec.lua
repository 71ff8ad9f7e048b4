local fleet = require("kvroute.fleet")
local floor = require("kvroute.floor")

local function sample(ttft, itl, more)
  local out = { replica = "a", ttft = ttft, itl = itl, prompt_tokens = 1000, cached_tokens = 10,
    failed = 0 }
  for name, value in pairs(more or {}) do out[name] = value end
  return out
end

describe("the floor", function()
  -- The study's: 329 and 7.8 ms, and what it chose among.
  it("gives limits as the study had them", function()
    for factor, slo in pairs({ [2] = { 660, 16 }, [3] = { 990, 24 }, [4] = { 1320, 32 },
      [5] = { 1645, 39 } }) do
      local found = floor.judge({ sample({ 329 }, { 7.8 }) }, factor)
      assert.same({ ttft_ms = slo[1], itl_ms = slo[2] }, found.slo)
    end
    assert.equal(990, floor.judge({ sample({ 329 }, { 7.8 }) }).slo.ttft_ms)
  end)

  it("pools the requests of all replicas, not their medians", function()
    local found = floor.judge({ sample({ 100, 100, 100 }, { 8 }), sample({ 500 }, { 8 }) })
    assert.equal(100, found.ttft_ms)
  end)

  it("is none of prompts that were cached", function()
    local found, why = floor.judge({ sample({ 46 }, { 8 }, { cached_tokens = 51 }) })
    assert.is_nil(found)
    assert.truthy(why:find("5 %% of the prompts were in a cache"))
    assert.truthy(floor.judge({ sample({ 46 }, { 8 }, { cached_tokens = 50 }) }))
    -- An engine that does not say is believed.
    local silent = sample({ 46 }, { 8 })
    silent.cached_tokens = nil
    assert.truthy(floor.judge({ silent }))
  end)

  it("is none of requests that failed, or of none", function()
    assert.is_nil(floor.judge({ sample({ 46 }, { 8 }, { failed = 1 }) }))
    assert.is_nil(floor.judge({ sample({}, {}) }))
  end)

  it("is measured on emulated engines, the same each time", function()
    local function measured()
      return floor.judge(floor.simulated(fleet.simulated({ profile = "rtx3090-8b-awq" }), 2, 30))
    end
    local found = measured()
    assert.is_true(found.ttft_ms > 313 and found.ttft_ms < 345, tostring(found.ttft_ms))
    assert.is_true(found.itl_ms > 7.4 and found.itl_ms < 8.2, tostring(found.itl_ms))
    assert.is_true(found.cached < 0.05)
    assert.equal(30, #found.samples[2].ttft)
    assert.same(found.slo, measured().slo)
    assert.truthy(floor.text(found):find("slo = { ttft_ms = ", 1, true))
  end)
end)
