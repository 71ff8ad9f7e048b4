local fleet = require("spec.support.fleet")

describe("p2c", function()
  local f = assert(fleet.policy("p2c"))

  it("takes the less loaded of two", function()
    f:see({}, { { in_flight = 3 }, { in_flight = 2 } })
    assert.same({ [1] = 200 }, f:spread(200))
    assert.same({ 1, "p2c", false }, { f:pick() })
  end)

  it("draws two different replicas: of three the most loaded never wins", function()
    f:see({}, { { in_flight = 1 }, { in_flight = 9 }, { in_flight = 5 } })
    local counts = f:spread(6000)
    assert.is_nil(counts[1])
    -- The least loaded is in 2 of 3 pairs. 6,000 draws: standard deviation 36.5.
    assert.is_true(math.abs(counts[0] - 4000) < 4 * 37, "row 0: " .. counts[0])
    assert.equal(6000, counts[0] + counts[2])
  end)

  it("breaks ties at random, evenly", function()
    f:see({}, { {}, {}, {}, {} })
    local counts = f:spread(8000)
    for i = 0, 3 do -- standard deviation 38.7
      assert.is_true(math.abs(counts[i] - 2000) < 4 * 39, i .. ": " .. counts[i])
    end
  end)

  it("weighs by load", function()
    f:see({}, { { in_flight = 3, weight = 4 }, { in_flight = 1 } })
    assert.same({ [0] = 100 }, f:spread(100))
  end)

  it("draws among the available only", function()
    f:see({}, { { available = false }, {}, { available = false }, {} })
    local counts = f:spread(400)
    assert.is_nil(counts[0])
    assert.is_nil(counts[2])
    assert.is_true(counts[1] > 100 and counts[3] > 100)
    f:see({}, { { available = false }, { in_flight = 50 } })
    assert.same({ [1] = 50 }, f:spread(50))
    f:see({}, { { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("draws the same for the same seed, and otherwise for another", function()
    local function draws(seed)
      local one = assert(fleet.policy("p2c", {}, seed))
      one:see({}, { {}, {}, {}, {}, {} })
      local list = {}
      for i = 1, 64 do
        list[i] = one:pick()
      end
      return table.concat(list)
    end
    assert.equal(draws(7), draws(7))
    assert.not_equal(draws(7), draws(8))
  end)
end)
