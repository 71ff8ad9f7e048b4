local fleet = require("spec.support.fleet")

-- The most that the row may already hold when a request of a session at home there is taken, with
-- `total` in flight over the fleet. By hand, from the published rules; eps 0.25.
local cases = {
  -- ceil(1.25 x 1 / 5) = 1, ceil(1.25 x 5 / 5) = 2, ceil(2.5) = 3, ceil(8) = 8; strict.
  { mode = "seed", weights = { 1, 1, 1, 1, 1 }, total = 0, most = { 0, 0, 0, 0, 0 } },
  { mode = "seed", weights = { 1, 1, 1, 1, 1 }, total = 4, most = { 1, 1, 1, 1, 1 } },
  { mode = "seed", weights = { 1, 1, 1, 1, 1 }, total = 9, most = { 2, 2, 2, 2, 2 } },
  { mode = "seed", weights = { 1, 1, 1, 1, 1 }, total = 31, most = { 7, 7, 7, 7, 7 } },
  -- Weights do not count: ceil(1.25 x 7 / 3) = ceil(2.92) = 3.
  { mode = "seed", weights = { 2, 1, 1 }, total = 6, most = { 2, 2, 2 } },
  -- s = (10 x 125 + 99) div 100 = 13 over W = 5: 2 each, and the remainder of 3 spread as
  -- floor(3/5) 0, floor(6/5) - 0 = 1, 1 - 1 = 0, 2 - 1 = 1, 3 - 2 = 1: 2 3 2 3 3 slots; strict.
  { mode = "haproxy", weights = { 1, 1, 1, 1, 1 }, total = 9, most = { 1, 2, 1, 2, 2 } },
  -- s = (3 x 125 + 99) div 100 = 4: 0 1 1 1 1, and never 0.
  { mode = "haproxy", weights = { 1, 1, 1, 1, 1 }, total = 2, most = { 0, 0, 0, 0, 0 } },
  { mode = "haproxy", weights = { 1, 1, 1, 1, 1 }, total = 31, most = { 7, 7, 7, 7, 7 } },
  -- s = (7 x 125 + 99) div 100 = 9 over W = 4: quotient 2, remainder 1; 2x2 + floor(2/4) = 4,
  -- 2 + floor(3/4) - floor(2/4) = 2, 2 + floor(4/4) - floor(3/4) = 3.
  { mode = "haproxy", weights = { 2, 1, 1 }, total = 6, most = { 3, 1, 2 } },
  -- The same shares at a hundredth of the weights.
  { mode = "haproxy", weights = { 0.02, 0.01, 0.01 }, total = 6, most = { 3, 1, 2 } },
  -- ceil(13 x 0.2) = 3, ceil(9 x 0.5) = 5, ceil(9 x 0.25) = 3; a full row is still taken.
  { mode = "envoy", weights = { 1, 1, 1, 1, 1 }, total = 9, most = { 3, 3, 3, 3, 3 } },
  { mode = "envoy", weights = { 2, 1, 1 }, total = 6, most = { 5, 3, 3 } },
  { mode = "envoy", weights = { 1, 1, 1, 1, 1 }, total = 1, most = { 1, 1, 1, 1, 1 } },
  -- 10 / 5 x 1.25 = 2.5 and 32 / 5 x 1.25 = 8, inclusive; weights do not count: 2.92.
  { mode = "kubeai", weights = { 1, 1, 1, 1, 1 }, total = 9, most = { 2, 2, 2, 2, 2 } },
  { mode = "kubeai", weights = { 1, 1, 1, 1, 1 }, total = 31, most = { 8, 8, 8, 8, 8 } },
  { mode = "kubeai", weights = { 2, 1, 1 }, total = 6, most = { 2, 2, 2 } },
}

-- Rows where `home` (0-based) holds `held` and the others share the rest of `total`.
local function rows_with(weights, home, held, total)
  local rows = {}
  for i, weight in ipairs(weights) do
    rows[i] = { weight = weight, in_flight = i - 1 == home and held or 0 }
  end
  local other = (home + 1) % #rows
  rows[other + 1].in_flight = total - held
  return rows
end

local function most_taken(f, case, home)
  f:see({}, rows_with(case.weights, home, 0, case.total))
  local session = f:key_at_home(home)
  local most = -1
  for held = 0, case.total do
    f:see({ session = session }, rows_with(case.weights, home, held, case.total))
    local index, reason = f:pick()
    if index == home then
      assert.equal("bounded_affinity", reason)
      assert.equal(held - 1, most, "taken, refused, then taken again")
      most = held
    else
      assert.equal("bound_deflected", reason)
    end
  end
  return most
end

describe("bounded_session_affinity", function()
  for _, case in ipairs(cases) do
    local name = ("mode %s, weights %s, %d in flight: rows take one more up to %s"):format(
      case.mode, table.concat(case.weights, " "), case.total, table.concat(case.most, " "))
    it(name, function()
      local f = assert(fleet.policy("bounded_session_affinity", { mode = case.mode }))
      local most = {}
      for home = 0, #case.weights - 1 do
        most[home + 1] = most_taken(f, case, home)
      end
      assert.same(case.most, most)
    end)
  end

  it("scales HAProxy's and Envoy's shares by the ramp", function()
    -- w 1, 1, 0.5 of 2.5; s = (6 x 125 + 99) div 100 = 8: floor(0.4 x 8) = 3, 6 - 3, 8 - 6 = 2.
    local function at_third(mode, held)
      local f = assert(fleet.policy("bounded_session_affinity", { mode = mode }))
      local rows = { { in_flight = 5 - held }, {}, { in_flight = held, ramp = 0.5 } }
      f:see({}, rows)
      f:see({ session = f:key_at_home(2) }, rows)
      return (f:pick()) == 2
    end
    assert.is_true(at_third("haproxy", 1))
    assert.is_false(at_third("haproxy", 2))
    assert.is_true(at_third("envoy", 2)) -- ceil(0.2 x 8) = 2, inclusive
    assert.is_false(at_third("envoy", 3))
  end)

  it("leaves unavailable replicas out of every mode's share", function()
    -- The first row is away with 100 in flight; 9 over rows 1, 2 and 3, the first of them half
    -- ramped. t = 10. seed: ceil(12.5 / 3) = 5. haproxy: s = 13, W = 2.5: floor(0.5 x 13 / 2.5) =
    -- 2, floor(1.5 x 5.2) - 2 = 5, 13 - 7 = 6. envoy: ceil(13 x 0.2) = 3, ceil(13 x 0.4) = 6.
    -- kubeai: 12.5 / 3 = 4.17.
    local expected = {
      seed = { 4, 4, 4 }, haproxy = { 1, 4, 5 }, envoy = { 3, 6, 6 }, kubeai = { 4, 4, 4 },
    }
    for mode, most in pairs(expected) do
      local f = assert(fleet.policy("bounded_session_affinity", { mode = mode }))
      for home = 1, 3 do
        for held = 0, 9 do
          local rows = { { available = false, in_flight = 100 }, { ramp = 0.5 }, {}, {} }
          rows[home + 1].in_flight = held
          rows[home % 3 + 2].in_flight = 9 - held
          f:see({}, rows)
          f:see({ session = f:key_at_home(home) }, rows)
          local taken = (f:pick()) == home
          assert.equal(held <= most[home], taken, mode .. " row " .. home .. " holds " .. held)
        end
      end
    end
  end)

  it("walks clockwise over distinct replicas to the first with room", function()
    local f = assert(fleet.policy("bounded_session_affinity"))
    f:see({}, { {}, {}, {}, {} })
    local order = f:ring_order(42)
    local rows = { {}, {}, {}, {} }
    rows[order[1] + 1].in_flight = 9
    rows[order[2] + 1].in_flight = 9
    f:see({ session = 42 }, rows) -- ceil(1.25 x 19 / 4) = 6
    assert.same({ order[3], "bound_deflected", false }, { f:pick() })
  end)

  it("counts ranks over available replicas only", function()
    local f = assert(fleet.policy("bounded_session_affinity"))
    local rows = { {}, {}, {}, {} }
    f:see({}, rows)
    local order = f:ring_order(42)
    rows[order[1] + 1] = { available = false, in_flight = 50 }
    f:see({ session = 42 }, rows)
    assert.same({ order[2], "bounded_affinity", false }, { f:pick() })
  end)

  it("leaves room up to min_cap whatever the bound", function()
    local rows = { {}, {}, {}, {}, {} }
    for _, mode in ipairs { "seed", "haproxy" } do
      for min_cap, expected in pairs { [1] = "bound_deflected", [4] = "bounded_affinity" } do
        local f = assert(fleet.policy("bounded_session_affinity",
                                      { mode = mode, min_cap = min_cap }))
        f:see({}, rows)
        local home = f:ring_order(5)[1]
        rows[home + 1].in_flight = 1 -- ceil(1.25 x 2 / 5) = 1
        f:see({ session = 5 }, rows)
        assert.equal(expected, select(2, f:pick()))
        rows[home + 1].in_flight = 0
      end
    end
  end)

  it("takes eps from its params", function()
    local f = assert(fleet.policy("bounded_session_affinity", { eps = 1 }))
    local case = { weights = { 1, 1, 1, 1, 1 }, total = 9 } -- ceil(2 x 10 / 5) = 4, strict
    assert.equal(3, most_taken(f, case, 0))
  end)

  it("sends what has no session to the fewest in flight, ties rotating", function()
    local f = assert(fleet.policy("bounded_session_affinity"))
    f:see({}, { { in_flight = 1 }, { in_flight = 0 }, { in_flight = 0 } })
    assert.same({ 1, "no_session", false }, { f:pick() })
    assert.same({ [1] = 10, [2] = 10 }, f:spread(20))
  end)

  it("has no opinion when nothing is available", function()
    local f = assert(fleet.policy("bounded_session_affinity"))
    f:see({ session = 1 }, { { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("refuses an unknown mode and a bound without room", function()
    assert.is_nil((fleet.policy("bounded_session_affinity", { mode = "maglev" })))
    assert.is_nil((fleet.policy("bounded_session_affinity", { eps = 0 })))
  end)
end)
