local fleet = require("spec.support.fleet")

describe("preble_cap", function()
  local f = assert(fleet.policy("preble_cap"))

  it("keeps a key where it came within two minutes", function()
    f:see({}, { { in_flight = 2 }, { key_age_ms = 120000, in_flight = 3 }, { in_flight = 3 } })
    assert.same({ [1] = 50 }, f:spread(50))
    assert.same({ 1, "exploit", true }, { f:pick() })
    f:see({}, { { in_flight = 2 }, { key_age_ms = 120001, in_flight = 3 }, { in_flight = 3 } })
    assert.same({ 0, "explore", false }, { f:pick() })
  end)

  it("takes the fewest in flight of several holders, the last one or not, ties in turn", function()
    f:see({}, { { in_flight = 1 }, { key_age_ms = 5, in_flight = 3 },
      { key_age_ms = 90000, in_flight = 2 }, { in_flight = 9 } })
    assert.same({ [2] = 50 }, f:spread(50))
    f:see({}, { { in_flight = 1 }, { key_age_ms = 5, in_flight = 2 },
      { key_age_ms = 90000, in_flight = 2 }, { in_flight = 9 } })
    assert.same({ [1] = 25, [2] = 25 }, f:spread(50))
  end)

  it("leaves a holder that would have over 1.5 times the mean, with this request", function()
    -- 12 in flight and this one on 3 replicas: room for 6.5
    f:see({}, { { key_age_ms = 1, in_flight = 5 }, { in_flight = 3 }, { in_flight = 4 } })
    assert.same({ 0, "exploit", true }, { f:pick() })
    f:see({}, { { key_age_ms = 1, in_flight = 6 }, { in_flight = 3 }, { in_flight = 3 } })
    assert.same({ 1, "over_cap", false }, { f:pick() })
    assert.same({ [1] = 25, [2] = 25 }, f:spread(50))
  end)

  it("lets an idle holder keep its key on an idle fleet, and no more than that", function()
    f:see({}, { { key_age_ms = 1 }, {}, {}, {} })
    assert.same({ [0] = 50 }, f:spread(50))
    f:see({}, { { key_age_ms = 1, in_flight = 1 }, {}, {}, {} })
    assert.equal("over_cap", select(2, f:pick()))
    assert.same({ [1] = 20, [2] = 20, [3] = 20 }, f:spread(60))
  end)

  it("counts neither holders nor load of replicas that are away", function()
    f:see({}, { { key_age_ms = 1, available = false }, { in_flight = 4 }, { in_flight = 3 } })
    assert.same({ 2, "explore", false }, { f:pick() })
    -- with the 90 of row 0 in the mean there would be room
    f:see({}, { { in_flight = 90, available = false }, { key_age_ms = 1, in_flight = 3 }, {} })
    assert.same({ 2, "over_cap", false }, { f:pick() })
  end)

  it("sends new keys to the fewest in flight, ties in turn", function()
    f:see({}, { { in_flight = 1 }, {}, {} })
    assert.same({ 1, "explore", false }, { f:pick() })
    assert.same({ [1] = 25, [2] = 25 }, f:spread(50))
  end)

  it("has no opinion when nothing is available", function()
    f:see({}, { { key_age_ms = 1, available = false } })
    assert.same({}, { f:pick() })
  end)

  it("takes another factor and another memory, and refuses nonsense", function()
    local g = assert(fleet.policy("preble_cap", { factor = 1.25, recent_s = 10 }))
    f:see({}, { { key_age_ms = 1, in_flight = 5 }, { in_flight = 3 }, { in_flight = 4 } })
    g:see({}, { { key_age_ms = 1, in_flight = 5 }, { in_flight = 3 }, { in_flight = 4 } })
    assert.equal("exploit", select(2, f:pick()))
    assert.equal("over_cap", select(2, g:pick()))
    g:see({}, { { key_age_ms = 10001, in_flight = 1 }, { in_flight = 1 } })
    assert.equal("explore", select(2, g:pick()))
    assert.is_nil((fleet.policy("preble_cap", { factor = 0.9 })))
    assert.is_nil((fleet.policy("preble_cap", { recent_s = 0 })))
  end)

  it("asks for keys, and for no spill rule", function()
    assert.same({ needs = 8, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
