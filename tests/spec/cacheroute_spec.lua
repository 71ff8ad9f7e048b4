local fleet = require("spec.support.fleet")

describe("cacheroute", function()
  local f = assert(fleet.policy("cacheroute"))

  local function see(planned, rows, request)
    f:see(request or {}, rows)
    f.picture.view.planned = planned and 1 or 0
  end

  it("sends a planned key to its destination, however busy", function()
    see(true, { {}, { in_flight = 90, assigned = 1 }, {} })
    assert.same({ [1] = 50 }, f:spread(50))
    assert.same({ 1, "planned", true }, { f:pick() })
  end)

  it("takes the least loaded of several destinations, ties in turn", function()
    see(true, { { in_flight = 1 }, { in_flight = 9, assigned = 1 },
      { in_flight = 8, assigned = 1 } })
    assert.same({ [2] = 50 }, f:spread(50))
    see(true, { { assigned = 1 }, {}, { assigned = 1 } })
    assert.same({ [0] = 50, [2] = 50 }, f:spread(100))
  end)

  it("weighs by load", function()
    see(true, { { in_flight = 3, weight = 4, assigned = 1 }, { in_flight = 1, assigned = 1 } })
    assert.same({ [0] = 50 }, f:spread(50))
  end)

  it("lets a key escape only when told so, and from a load that is too far above the least",
    function()
      local rows = { { in_flight = 9, assigned = 1 }, { in_flight = 1 }, { in_flight = 8 } }
      see(true, rows)
      assert.same({ 0, "planned", true }, { f:pick() })
      local e = assert(fleet.policy("cacheroute", { escape = 8 }))
      local function pick(in_flight, weight)
        rows[1].in_flight, rows[1].weight = in_flight, weight or 1
        e:see({}, rows)
        e.picture.view.planned = 1
        return e:pick()
      end
      assert.same({ 0, "planned", true }, { pick(9) })
      assert.same({ 1, "escaped", false }, { pick(10) })
      assert.same({ 0, "planned", true }, { pick(18, 2) })
    end)

  it("sends any other key by two choices", function()
    see(false, { { in_flight = 3 }, { in_flight = 2 } })
    assert.same({ [1] = 200 }, f:spread(200))
    assert.same({ 1, "unplanned", false }, { f:pick() })
    see(false, { {}, {}, {}, {} })
    local counts = f:spread(8000)
    for i = 0, 3 do -- standard deviation 38.7
      assert.is_true(math.abs(counts[i] - 2000) < 4 * 39, i .. ": " .. counts[i])
    end
  end)

  it("sends a planned key elsewhere while none of its destinations is available", function()
    see(true, { { assigned = 1, available = false }, { in_flight = 5 }, { in_flight = 7 } })
    assert.same({ [1] = 100 }, f:spread(100))
    assert.same({ 1, "planned_away", false }, { f:pick() })
    see(true, { { assigned = 1, available = false }, { in_flight = 5 }, { assigned = 1 } })
    assert.same({ [2] = 100 }, f:spread(100))
    see(true, { { assigned = 1, available = false } })
    assert.same({}, { f:pick() })
  end)
end)
