local fleet = require("spec.support.fleet")

local function chain(blocks, last)
  local keys = {}
  for i = 1, blocks do
    keys[i] = 1000 + i
  end
  keys[16] = blocks >= 16 and (last or keys[16]) or nil
  return keys
end

local function idle(n)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
  end
  return rows
end

describe("prefix_hash", function()
  local f = assert(fleet.policy("prefix_hash"))

  local function order_for(key)
    f:see({}, idle(5))
    return f:ring_order(key)
  end

  it("sends equal openings to one replica, whatever comes after the window", function()
    local home = order_for(77)[1]
    for blocks = 16, 40 do
      f:see({ chain = chain(blocks, 77), serial = blocks }, idle(5))
      assert.same({ home, "prefix_hash", false }, { f:pick() })
    end
  end)

  it("looks at the last block of the window only: its key stands for all before", function()
    local seen = {}
    for key = 1, 60 do
      f:see({ chain = chain(20, key) }, idle(5))
      seen[(f:pick())] = true
    end
    for i = 0, 4 do
      assert.is_true(seen[i], "no opening of 60 at row " .. i)
    end
  end)

  it("pays 4 requests in flight for one step down the order", function()
    local order = order_for(5)
    local function with_home_at(in_flight)
      local rows = idle(5)
      rows[order[1] + 1].in_flight = in_flight
      f:see({ chain = chain(16, 5), serial = 0 }, rows)
      return { f:pick() }
    end
    assert.same({ order[1], "prefix_hash", false }, with_home_at(3))
    assert.same({ order[2], "hash_deflected", false }, with_home_at(5))
  end)

  it("rotates between replicas of equal cost", function()
    local order = order_for(5)
    local rows = idle(5)
    rows[order[1] + 1].in_flight = 8 -- cost 8 at ranks 0, 1 and 2
    rows[order[2] + 1].in_flight = 4
    rows[order[4] + 1].in_flight = 3
    f:see({ chain = chain(16, 5) }, rows)
    assert.same({ [order[1]] = 20, [order[2]] = 20, [order[3]] = 20 }, f:spread(60))
  end)

  it("counts ranks over available replicas only", function()
    local order = order_for(5)
    local rows = idle(5)
    rows[order[1] + 1].available = false
    rows[order[2] + 1].in_flight = 3 -- rank 0 now: cost 3 against 4
    f:see({ chain = chain(16, 5) }, rows)
    assert.same({ order[2], "prefix_hash", false }, { f:pick() })
  end)

  it("counts requests in flight, not load", function()
    local order = order_for(5)
    local rows = idle(5)
    rows[order[1] + 1] = { in_flight = 5, weight = 10 }
    f:see({ chain = chain(16, 5) }, rows)
    assert.equal(order[2], (f:pick()))
  end)

  it("sends a prompt shorter than the window to the fewest in flight, ties rotating", function()
    f:see({ chain = chain(15) }, { { in_flight = 2 }, {}, {} })
    assert.same({ 1, "unhashed", false }, { f:pick() })
    assert.same({ [1] = 10, [2] = 10 }, f:spread(20))
    f:see({}, { { in_flight = 2, weight = 9 }, { in_flight = 1 } })
    assert.same({ 1, "unhashed", false }, { f:pick() })
  end)

  it("has no opinion when nothing is available", function()
    f:see({ chain = chain(16) }, { { available = false }, { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("takes window and weight from its params", function()
    local narrow = assert(fleet.policy("prefix_hash", { window = 2, weight = 0 }))
    narrow:see({}, idle(5))
    local order = narrow:ring_order(1002)
    local rows = idle(5)
    rows[order[1] + 1].in_flight = 1
    for i = 3, 5 do
      rows[order[i] + 1].in_flight = 1
    end
    narrow:see({ chain = chain(2) }, rows)
    assert.same({ order[2], "hash_deflected", false }, { narrow:pick() })
    assert.is_nil((fleet.policy("prefix_hash", { window = 0 })))
    assert.is_nil((fleet.policy("prefix_hash", { window = 1.5 })))
    assert.is_nil((fleet.policy("prefix_hash", { weight = -1 })))
  end)
end)
