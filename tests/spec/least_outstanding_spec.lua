local fleet = require("spec.support.fleet")

describe("least_outstanding", function()
  local f = assert(fleet.policy("least_outstanding"))

  it("takes the fewest requests in flight", function()
    f:see({}, { { in_flight = 2 }, { in_flight = 1 }, { in_flight = 3 } })
    assert.same({ 1, "least_outstanding", false }, { f:pick() })
  end)

  it("rotates ties evenly, and only over the tied", function()
    f:see({}, { { in_flight = 1 }, { in_flight = 5 }, { in_flight = 1 }, { in_flight = 1 } })
    assert.same({ [0] = 100, [2] = 100, [3] = 100 }, f:spread(300))
  end)

  it("does not send an idle fleet's traffic to one replica", function()
    f:see({}, { {}, {}, {}, {}, {} })
    assert.same({ [0] = 20, [1] = 20, [2] = 20, [3] = 20, [4] = 20 }, f:spread(100))
  end)

  it("counts load by weight: 3 on a double replica are less than 2 on a single one", function()
    f:see({}, { { in_flight = 2 }, { in_flight = 3, weight = 2 } })
    assert.equal(1, (f:pick()))
    f:see({}, { { in_flight = 1 }, { in_flight = 3, weight = 2 } })
    assert.equal(0, (f:pick()))
  end)

  it("counts load by ramp: a replica just back gets its share slowly", function()
    f:see({}, { { in_flight = 4 }, { in_flight = 1, ramp = 0.1 } })
    assert.equal(0, (f:pick()))
  end)

  it("passes over an unavailable replica, however idle", function()
    f:see({}, { { available = false }, { in_flight = 7 } })
    assert.equal(1, (f:pick()))
  end)

  it("has no opinion when nothing is available", function()
    f:see({}, { { available = false }, { available = false } })
    assert.same({}, { f:pick() })
    f:see({}, {})
    assert.same({}, { f:pick() })
  end)
end)
