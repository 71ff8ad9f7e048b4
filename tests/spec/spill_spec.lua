local fleet = require("spec.support.fleet")

-- Rows with these requests in flight.
local function in_flight(...)
  local rows = {}
  for i, n in ipairs { ... } do
    rows[i] = { in_flight = n }
  end
  return rows
end

local function spill(f, rows, preferred)
  f:see({}, rows)
  return { f:spill(preferred) }
end

-- Staying is the preferred index; no reason counts then.
local function stays(f, rows, preferred)
  f:see({}, rows)
  assert.equal(preferred, (f:spill(preferred)))
end

describe("spill off", function()
  it("stays, however loaded", function()
    local f = assert(fleet.spill("off"))
    stays(f, in_flight(1000, 0, 0), 0)
  end)
end)

describe("spill load_min", function()
  local f = assert(fleet.spill("load_min"))

  it("declines strictly above twice the fewest, taken as at least 1", function()
    stays(f, in_flight(2, 0, 0), 0)
    assert.same({ 1, "spill_load" }, spill(f, in_flight(3, 0, 1), 0))
    stays(f, in_flight(6, 3, 4), 0)
    assert.same({ 1, "spill_load" }, spill(f, in_flight(7, 3, 4), 0))
  end)

  it("counts the fewest over the preferred too", function()
    stays(f, in_flight(5, 3, 4), 2)
    stays(f, in_flight(9), 0)
  end)

  it("rotates between the least loaded others, never the declined one", function()
    f:see({}, in_flight(9, 1, 4, 1, 1))
    assert.same({ [1] = 20, [3] = 20, [4] = 20 }, f:spread(60, function(fleet_)
      return (fleet_:spill(0))
    end))
  end)

  it("looks at available replicas only, for the fewest and for the target", function()
    local rows = in_flight(9, 0, 4, 5)
    rows[2].available = false
    assert.same({ 2, "spill_load" }, spill(f, rows, 0))
    rows[1].in_flight = 8
    stays(f, rows, 0)
  end)

  it("stays without another available replica", function()
    local rows = in_flight(9, 0)
    rows[2].available = false
    stays(f, rows, 0)
  end)

  it("counts requests in flight, not load", function()
    local rows = in_flight(5, 2, 3)
    rows[1].weight, rows[3].weight = 100, 100
    assert.same({ 1, "spill_load" }, spill(f, rows, 0))
  end)

  it("takes its factor from its params: 0 never declines, between 0 and 1 is refused", function()
    stays(assert(fleet.spill("load_min", { factor = 4 })), in_flight(4, 0), 0)
    assert.equal(1, spill(assert(fleet.spill("load_min", { factor = 4 })), in_flight(5, 0), 0)[1])
    stays(assert(fleet.spill("load_min", { factor = 0 })), in_flight(1000, 0), 0)
    assert.is_nil((fleet.spill("load_min", { factor = 0.5 })))
  end)
end)

describe("spill load_mean", function()
  local f = assert(fleet.spill("load_mean"))

  it("declines strictly above twice the mean, the preferred included, at least 1", function()
    stays(f, in_flight(2, 0, 0, 0), 0) -- mean 0.5, taken as 1
    assert.same({ 1, "spill_mean" }, spill(f, in_flight(3, 0, 1, 0), 0)) -- mean 1
    stays(f, in_flight(6, 1, 2), 0) -- mean 3
    assert.same({ 1, "spill_mean" }, spill(f, in_flight(7, 1, 2), 0)) -- mean 3.33
  end)

  it("declines less than load_min when one replica is idle", function()
    local rows = in_flight(5, 0, 5, 5)
    stays(f, rows, 0)
    assert.equal(1, spill(assert(fleet.spill("load_min")), rows, 0)[1])
  end)

  it("leaves unavailable replicas out of the mean", function()
    local rows = in_flight(7, 1, 2, 100)
    rows[4].available = false
    assert.same({ 1, "spill_mean" }, spill(f, rows, 0))
  end)

  it("takes its factor from its params", function()
    stays(assert(fleet.spill("load_mean", { factor = 0 })), in_flight(1000, 0, 0), 0)
    assert.equal(1, spill(assert(fleet.spill("load_mean", { factor = 1 })), in_flight(3, 0), 0)[1])
    assert.is_nil((fleet.spill("load_mean", { factor = 0.9 })))
  end)
end)

describe("spill tokens", function()
  local f = assert(fleet.spill("tokens"))

  local function tokens(rate, ...)
    local rows = {}
    for i, n in ipairs { ... } do
      rows[i] = { uncached_tokens = n, prefill_tokens_per_s = rate }
    end
    return rows
  end

  it("declines strictly above one second of the fastest measured prefill", function()
    stays(f, tokens(1000, 1500, 500, 900), 0)
    assert.same({ 1, "spill_tokens" }, spill(f, tokens(1000, 1501, 500, 900), 0))
    local rows = tokens(1000, 1501, 500, 900)
    rows[3].prefill_tokens_per_s = 2000
    stays(f, rows, 0)
  end)

  it("does not hang on small counts of requests", function()
    local rows = tokens(4000, 300, 0, 0)
    rows[1].in_flight = 3
    stays(f, rows, 0)
    assert.equal(1, spill(assert(fleet.spill("load_min")), rows, 0)[1])
  end)

  it("takes the stated rate until something is measured", function()
    stays(f, tokens(0 / 0, 4000, 0), 0)
    assert.same({ 1, "spill_tokens" }, spill(f, tokens(0 / 0, 4001, 0), 0))
    local stated = assert(fleet.spill("tokens", { fallback_tokens_per_s = 100, seconds = 2 }))
    stays(stated, tokens(0 / 0, 200, 0), 0)
    assert.same({ 1, "spill_tokens" }, spill(stated, tokens(0 / 0, 201, 0), 0))
  end)

  it("rotates between the others with the fewest tokens", function()
    f:see({}, tokens(1000, 9000, 10, 500, 10))
    assert.same({ [1] = 10, [3] = 10 }, f:spread(20, function(fleet_)
      return (fleet_:spill(0))
    end))
  end)

  it("stays when the preferred has the fewest, and without another", function()
    stays(f, tokens(1000, 0, 5000), 0)
    local rows = tokens(1000, 9000, 0)
    rows[2].available = false
    stays(f, rows, 0)
  end)

  it("refuses rates and times that mean nothing", function()
    assert.is_nil((fleet.spill("tokens", { seconds = -1 })))
    assert.is_nil((fleet.spill("tokens", { fallback_tokens_per_s = 0 })))
  end)
end)

describe("spill hit_rate", function()
  local function rows_with(...)
    local rows = {}
    for i, rate in ipairs { ... } do
      rows[i] = { engine_hit_rate = rate, in_flight = i }
    end
    return rows
  end

  it("is shipped off", function()
    stays(assert(fleet.spill("hit_rate")), rows_with(0, 1, 1), 0)
  end)

  it("declines a replica strictly under the mark", function()
    local f = assert(fleet.spill("hit_rate", { low_water = 0.55 }))
    stays(f, rows_with(0.55, 0.9, 0.9), 0)
    assert.same({ 1, "spill_hit_rate" }, spill(f, rows_with(0.54, 0.9, 0.9), 0))
  end)

  it("takes no target that is under the mark too, and stays when all are", function()
    local f = assert(fleet.spill("hit_rate", { low_water = 0.55 }))
    assert.same({ 2, "spill_hit_rate" }, spill(f, rows_with(0.5, 0.2, 0.9), 0))
    stays(f, rows_with(0.5, 0.2, 0.3), 0)
    local rows = rows_with(0.5, 0.9)
    rows[2].available = false
    stays(f, rows, 0)
  end)

  it("never takes an unread rate for a low one", function()
    local f = assert(fleet.spill("hit_rate", { low_water = 0.99 }))
    stays(f, rows_with(0 / 0, 1, 1), 0)
    assert.same({ 1, "spill_hit_rate" }, spill(f, rows_with(0.1, 0 / 0, 1), 0))
  end)

  it("rotates ties", function()
    local f = assert(fleet.spill("hit_rate", { low_water = 0.5 }))
    local rows = rows_with(0.1, 0.9, 0.9)
    rows[3].in_flight = 2
    f:see({}, rows)
    assert.same({ [1] = 10, [2] = 10 }, f:spread(20, function(fleet_)
      return (fleet_:spill(0))
    end))
  end)

  it("asks load_min's rule second when a factor is given", function()
    local f = assert(fleet.spill("hit_rate", { low_water = 0.5, factor = 2 }))
    local rows = rows_with(0.9, 0.1, 0.9)
    rows[1].in_flight, rows[2].in_flight, rows[3].in_flight = 5, 1, 2
    assert.same({ 1, "spill_load" }, spill(f, rows, 0)) -- the load branch takes any other
    rows[1].engine_hit_rate = 0.4
    assert.same({ 2, "spill_hit_rate" }, spill(f, rows, 0))
    rows[1].engine_hit_rate, rows[1].in_flight = 0.9, 2
    stays(f, rows, 0)
  end)

  it("refuses a mark of 1 and a factor below 1", function()
    assert.is_nil((fleet.spill("hit_rate", { low_water = 1 })))
    assert.is_nil((fleet.spill("hit_rate", { factor = 0.5 })))
  end)
end)
