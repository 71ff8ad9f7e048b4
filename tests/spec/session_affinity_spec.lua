local fleet = require("spec.support.fleet")

local function idle(n)
  local rows = {}
  for i = 1, n do
    rows[i] = {}
  end
  return rows
end

describe("session_affinity", function()
  for _, mode in ipairs { "ring", "hrw" } do
    describe("in mode " .. mode, function()
      local f = assert(fleet.policy("session_affinity", { mode = mode }))

      local function order_of(session)
        return mode == "ring" and f:ring_order(session) or f:hrw_order(session)
      end

      it("takes the first of the session's order, whatever the load and the serial", function()
        for session = 1, 50 do
          f:see({ session = session, serial = session * 7 }, idle(5))
          local home = order_of(session)[1]
          assert.same({ home, "session_affinity", false }, { f:pick() })
          local rows = idle(5)
          rows[home + 1].in_flight = 1000
          f:see({ session = session }, rows)
          assert.equal(home, (f:pick()))
        end
      end)

      it("goes to the next in the order while its home is away, then back", function()
        local rows = idle(5)
        f:see({ session = 9 }, rows)
        local order = order_of(9)
        rows[order[1] + 1].available = false
        f:see({ session = 9 }, rows)
        assert.same({ order[2], "session_affinity", false }, { f:pick() })
        rows[order[2] + 1].available = false
        f:see({ session = 9 }, rows)
        assert.equal(order[3], (f:pick()))
        f:see({ session = 9 }, idle(5))
        assert.equal(order[1], (f:pick()))
      end)

      it("moves no other session when a replica is away", function()
        local rows = idle(5)
        rows[3].available = false
        for session = 1, 200 do
          f:see({ session = session }, idle(5))
          local home = f:pick()
          f:see({ session = session }, rows)
          if home ~= 2 then assert.equal(home, (f:pick())) end
        end
      end)

      it("spreads 600 sessions over 5 replicas", function()
        local counts = { [0] = 0, 0, 0, 0, 0 }
        for session = 1, 600 do
          f:see({ session = session }, idle(5))
          local index = f:pick()
          counts[index] = counts[index] + 1
        end
        for i = 0, 4 do -- a ring of 128 virtual nodes is within about 1.3 of even
          assert.is_true(counts[i] > 70 and counts[i] < 190, i .. ": " .. counts[i])
        end
      end)

      it("sends what has no session to the fewest in flight, ties rotating", function()
        f:see({}, { { in_flight = 2 }, { in_flight = 1 }, { in_flight = 1 } })
        assert.same({ 1, "no_session", false }, { f:pick() })
        assert.same({ [1] = 10, [2] = 10 }, f:spread(20))
      end)

      it("has no opinion when nothing is available", function()
        f:see({ session = 3 }, { { available = false } })
        assert.same({}, { f:pick() })
        f:see({ session = 3 }, {})
        assert.same({}, { f:pick() })
      end)
    end)
  end

  it("counts requests in flight, not load, for what has no session", function()
    local f = assert(fleet.policy("session_affinity"))
    f:see({}, { { in_flight = 3, weight = 4 }, { in_flight = 2 } })
    assert.equal(1, (f:pick()))
  end)

  it("refuses another mode", function()
    local f, reason = fleet.policy("session_affinity", { mode = "jump" })
    assert.is_nil(f)
    assert.matches("mode must be ring or hrw, not jump", reason, 1, true)
  end)
end)
