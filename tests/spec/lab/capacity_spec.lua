-- The knees of made-up ladders.
local capacity = require("kvroute.capacity")

-- p99 of the first token by rate, for each seed; nil: not run.
local function ladder(rates, ...)
  local pools = {}
  for i, rate in ipairs(rates) do
    local pool = { policy = "a", at = { rate = rate, keys = 128 }, cells = {}, results = {} }
    for seed, tails in ipairs({ ... }) do
      local tail = tails[i]
      if tail then
        pool.cells[#pool.cells + 1] = { seed = seed }
        pool.results[#pool.results + 1] = type(tail) == "table" and tail
          or { requests = 100, success = 100, ttft_p99_all = tail }
      end
    end
    pools[i] = pool
  end
  return { pools = pools }
end

local never = { requests = 100, success = 90 } -- p99 is not known

describe("capacity", function()
  it("is the highest rate that passes, for each seed, and their mean", function()
    local found = capacity.of(ladder({ 10, 20, 30 }, { 1, 2, 9 }, { 1, 2, 3 }, { 1, 9, 9 }), "a",
      nil, 5)
    assert.same({ 20, 30, 10 }, found.values)
    assert.equal(20, found.mean)
    assert.is_true(math.abs(found.half - 4.3027 * 10 / math.sqrt(3)) < 1e-2)
    assert.is_true(found.above and not found.below)
    assert.equal("20+ +- 25", capacity.text(found))
  end)

  it("takes a rate that passes above one that fails", function()
    assert.same({ 30 }, capacity.of(ladder({ 10, 20, 30 }, { 1, 9, 4 }), "a", nil, 5).values)
  end)

  it("marks what the ladder cuts off", function()
    local function text(...)
      return capacity.text(capacity.of(ladder({ 10, 20 }, ...), "a", {}, 5))
    end
    assert.equal("<10", text({ 9, never }, { never }))
    assert.equal("20+", text({ 1, 5 }, { 1, 5 }))
    assert.equal("10", text({ 1, never }, { 1 }))
    assert.equal("<5 +- 64", text({ 1 }, { never }))
    assert.is_false(text({}))
  end)

  it("tells a difference from a tie, seed by seed", function()
    local function of(...) return capacity.of(ladder({ 10, 20, 30 }, ...), "a", nil, 5) end
    local low = of({ 1, 9, 9 }, { 1, 2, 9 }, { 1, 2, 9 })  -- 10, 20, 20
    local high = of({ 1, 2, 9 }, { 1, 2, 3 }, { 1, 2, 3 }) -- 20, 30, 30: ten more each
    assert.equal("+10 +- 0", capacity.difference(high, low))
    assert.equal("-10 +- 0", capacity.difference(low, high))
    local mixed = of({ 1, 2, 9 }, { 1, 2, 9 }, { 1, 2, 3 })
    assert.equal("+7 +- 14 tie", capacity.difference(mixed, low))
    assert.equal("+0 +- 0 tie", capacity.difference(low, low))
    assert.equal("+10", capacity.difference(of({ 1, 2, 9 }), of({ 1, 9, 9 })))
    assert.is_false(capacity.difference(of(), low))
  end)

  it("asks that few fail, whatever the tail", function()
    local function passes(success)
      return capacity.passes({ requests = 1000, success = success, ttft_p99_all = 1 }, 5)
    end
    assert.is_true(passes(950))
    assert.is_false(passes(949))
    assert.is_false(capacity.passes(never, 5))
    assert.is_true(capacity.hopeless({ requests = 1000, success = 949 }))
    assert.is_false(capacity.hopeless({ requests = 1000, success = 950 }))
  end)

  it("looks only where it is asked to", function()
    local found = ladder({ 10, 20 }, { 1, 1 })
    found.pools[2].at.keys = 256
    assert.same({ 10 }, capacity.of(found, "a", { keys = 128 }, 5).values)
    assert.same({}, capacity.of(found, "b", nil, 5).values)
  end)

  it("has ratios, with what is cut off marked", function()
    local function of(mean, below, above)
      return { mean = mean, below = below or false, above = above or false }
    end
    assert.equal("2.10x", capacity.ratio(of(21), of(10)))
    assert.equal(">2.10x", capacity.ratio(of(21, false, true), of(10)))
    assert.equal(">2.10x", capacity.ratio(of(21), of(10, true)))
    assert.equal("<2.10x", capacity.ratio(of(21), of(10, false, true)))
    assert.equal("cut off", capacity.ratio(of(10, false, true), of(10, false, true)))
    assert.is_false(capacity.ratio(of(21), of(0, true)))
  end)
end)
