local fleet = require("spec.support.fleet")

describe("prefix_affinity", function()
  local f = assert(fleet.policy("prefix_affinity"))

  it("takes the longest match, whatever its load", function()
    f:see({}, { { match_blocks = 3 }, { match_blocks = 7, in_flight = 50 }, {} })
    assert.same({ 1, "prefix", true }, { f:pick() })
  end)

  it("takes the fewest in flight of those that share the longest match", function()
    f:see({}, {
      { match_blocks = 7, in_flight = 3 }, { match_blocks = 7, in_flight = 1 },
      { match_blocks = 6 }, { match_blocks = 7, in_flight = 2 },
    })
    assert.same({ 1, "prefix", true }, { f:pick() })
    assert.same({ [1] = 30 }, f:spread(30))
  end)

  it("rotates ties among them evenly", function()
    f:see({}, {
      { match_blocks = 7, in_flight = 1 }, {}, { match_blocks = 7, in_flight = 1 },
      { match_blocks = 7, in_flight = 1 }, { match_blocks = 7, in_flight = 2 },
    })
    assert.same({ [0] = 30, [2] = 30, [3] = 30 }, f:spread(90))
  end)

  it("skips to the next longest when the longest holder is not available", function()
    f:see({}, { { match_blocks = 9, available = false }, { match_blocks = 2 }, {} })
    assert.same({ 1, "prefix", true }, { f:pick() })
  end)

  it("sends a cold request to the fewest in flight, ties rotating; it may not spill", function()
    f:see({}, { { in_flight = 4 }, { in_flight = 1 }, { in_flight = 1 } })
    assert.same({ 1, "cold", false }, { f:pick() })
    assert.same({ [1] = 10, [2] = 10 }, f:spread(20))
  end)

  it("counts a match on an unavailable replica alone as cold", function()
    f:see({}, { { match_blocks = 9, available = false }, { in_flight = 2 }, { in_flight = 1 } })
    assert.same({ 2, "cold", false }, { f:pick() })
  end)

  it("counts requests in flight unless told to count load", function()
    local rows = {
      { match_blocks = 2, in_flight = 3, weight = 4 }, { match_blocks = 2, in_flight = 2 },
    }
    f:see({}, rows)
    assert.equal(1, (f:pick()))
    local by_load = assert(fleet.policy("prefix_affinity", { by = "load" }))
    by_load:see({}, rows)
    assert.same({ 0, "prefix", true }, { by_load:pick() })
    rows[1].match_blocks, rows[2].match_blocks = 0, 0
    f:see({}, rows)
    assert.same({ 1, "cold", false }, { f:pick() })
    by_load:see({}, rows)
    assert.same({ 0, "cold", false }, { by_load:pick() })
    assert.is_nil((fleet.policy("prefix_affinity", { by = "weight" })))
  end)

  it("has no opinion when nothing is available", function()
    f:see({}, { { match_blocks = 4, available = false } })
    assert.same({}, { f:pick() })
    f:see({}, {})
    assert.same({}, { f:pick() })
  end)

  it("asks for matches, and for load_min as its spill rule", function()
    assert.same({ needs = 1, spill = "load_min" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
