local recovery = require("kvroute.recovery")

local plan = { fault_s = 100, warmup_s = 50, end_s = 300, bucket_s = 5 }

-- Six requests a second; `good` says which are.
local function curve(good, options)
  local c = recovery.new(options or plan)
  for k = 0, 300 * 6 do c:see(k / 6, good(k / 6)) end
  return c:finish()
end

describe("the curve of a recovery", function()
  it("is flat where nothing happens", function()
    local c = curve(function() return true end)
    assert.equal(50, #c.buckets)
    assert.equal(-50, c.buckets[1].from_s)
    assert.equal(6, c.baseline)
    assert.equal(0, c.deficit)
    assert.equal(-5, c.steady_s)
  end)

  it("has trough, deficit and the way back", function()
    local c = curve(function(at) return at < 100 or at >= 160 or at % 1 < 0.5 end)
    assert.equal(3, c.trough)
    assert.equal(0, c.trough_s)
    assert.near(180, c.deficit, 1e-9)
    assert.equal(60, c.steady_s)
  end)

  -- The last request of an even plan is due at the very end. In a bucket of its own it made a curve
  -- that fell to one request at the end, and a recovery that never came.
  it("puts what is sent past the end into the last bucket", function()
    local c = recovery.new(plan)
    for k = 0, 300 * 6 do c:see(k / 6, true) end
    c:see(300.4, true)
    c = c:finish()
    assert.equal(50, #c.buckets)
    assert.equal(195, c.buckets[50].from_s)
    assert.equal(32, c.buckets[50].sent)
    assert.equal(6, c.trough)
    assert.equal(-5, c.steady_s)
  end)

  it("begins a bucket with the fault itself", function()
    local c = curve(function(at) return at < 100 end)
    assert.equal(6, c.buckets[10].goodput)
    assert.equal(0, c.buckets[11].goodput)
    assert.equal(0, c.buckets[11].from_s)
  end)

  it("keeps empty buckets", function()
    local c = recovery.new(plan)
    for k = 0, 299 do
      if k < 100 or k >= 120 then c:see(k, true) end
    end
    c = c:finish()
    assert.equal(0, c.buckets[11].sent)
    assert.equal(0, c.trough)
    assert.equal(20, c.deficit)
  end)

  it("leaves out the warm-up, and the bucket before the fault", function()
    local c = curve(function(at) return at >= 50 and (at < 95 or at >= 100) end)
    assert.equal(6, c.baseline)
    assert.equal(30, c.deficit)
  end)

  it("says nothing of a steady state that did not last", function()
    local c = curve(function(at) return at < 100 or at >= 110 and at < 290 end)
    assert.is_nil(c.steady_s)
  end)

  it("refuses times that buckets would cut", function()
    assert.error_matches(function()
      recovery.new({ fault_s = 101, warmup_s = 50, end_s = 300, bucket_s = 5 })
    end, "fault_s is no multiple of the bucket of 5 s")
  end)
end)
