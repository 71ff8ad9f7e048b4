local stats = require("kvroute.stats")

local function near(expected, got, tolerance)
  assert.is_true(math.abs(expected - got) <= (tolerance or 1e-9) * math.max(1, math.abs(expected)),
    ("%.12g instead of %.12g"):format(got, expected))
end

describe("stats", function()
  it("takes medians by nearest rank, always one of the values", function()
    assert.equal(3, stats.median({ 5, 1, 3 }))
    assert.equal(3, stats.median({ 9, 1, 3, 5 }))
    assert.equal(7, stats.median({ 7 }))
    assert.is_true(stats.median({}) ~= stats.median({}))
  end)

  it("takes quantiles by nearest rank", function()
    local values = {}
    for i = 1, 100 do values[i] = 101 - i end
    assert.equal(1, stats.quantile(values, 0))
    assert.equal(50, stats.quantile(values, 0.5))
    assert.equal(99, stats.quantile(values, 0.99))
    assert.equal(100, stats.quantile(values, 1))
  end)

  it("leaves out what is no number", function()
    local least, most = stats.range({ 0 / 0, 2, 8, 4 })
    assert.equal(2, least)
    assert.equal(8, most)
    assert.equal(4, stats.median({ 0 / 0, 2, 8, 4 }))
  end)

  it("leaves its argument in its order", function()
    local values = { 3, 1, 2 }
    stats.median(values)
    assert.same({ 3, 1, 2 }, values)
  end)

  -- From printed tables of Student's distribution, two-sided.
  it("knows Student's t", function()
    for _, row in ipairs({
      { 1, 0.95, 12.706 }, { 2, 0.95, 4.303 }, { 3, 0.95, 3.182 }, { 4, 0.95, 2.776 },
      { 5, 0.95, 2.571 }, { 8, 0.95, 2.306 }, { 9, 0.95, 2.262 }, { 30, 0.95, 2.042 },
      { 4, 0.99, 4.604 }, { 7, 0.99, 3.499 }, { 10, 0.90, 1.812 }, { 120, 0.95, 1.980 },
    }) do
      near(row[3], stats.student(row[1], row[2]), 3e-4)
    end
  end)

  it("makes intervals of the mean", function()
    local mean, half = stats.interval({ 10, 12, 14, 16, 18 })
    near(14, mean)
    near(2.776445 * math.sqrt(10) / math.sqrt(5), half, 1e-6)
    mean, half = stats.interval({ 3 })
    assert.equal(3, mean)
    assert.is_true(half ~= half)
  end)

  it("calls a difference separated only when ranges are disjoint", function()
    assert.is_true(stats.separated({ 1, 2, 3 }, { 3.1, 9, 4 }))
    assert.is_true(stats.separated({ 3.1, 9, 4 }, { 1, 2, 3 }))
    assert.is_false(stats.separated({ 1, 2, 3 }, { 3, 9, 4 }))
    assert.is_false(stats.separated({ 1, 9 }, { 2, 3 }))
  end)

  it("does not separate what was measured once", function()
    assert.is_false(stats.separated({ 1 }, { 100, 101 }))
    assert.is_false(stats.separated({ 100, 101 }, { 1 }))
  end)
end)
