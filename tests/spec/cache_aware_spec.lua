local fleet = require("spec.support.fleet")

describe("cache_aware", function()
  local f = assert(fleet.policy("cache_aware"))
  local window = assert(fleet.policy("cache_aware", { mode = "window" }))
  local chain = {}
  for i = 1, 10 do chain[i] = i end

  local function picks(g, rows)
    g:see({ chain = chain, serial = 0 }, rows)
    return { g:pick() }
  end

  for mode, g in pairs { fleet = f, window = window } do
    describe("in mode " .. mode, function()
      it("takes the longest match over three tenths of the prompt", function()
        local rows = { {}, { match_blocks = 4, in_flight = 20 }, { match_blocks = 3 } }
        assert.same({ 1, "prefix", true }, picks(g, rows))
        rows[2].match_blocks = 3
        assert.same({ 0, "cold", false }, picks(g, rows)) -- not over
      end)

      it("takes the fewest in flight of equal matches, and of all without; ties rotate", function()
        picks(g, { { match_blocks = 9, in_flight = 2 }, { match_blocks = 9, in_flight = 1 },
          { match_blocks = 9, in_flight = 1 }, {} })
        assert.same({ [1] = 10, [2] = 10 }, g:spread(20))
        picks(g, { { in_flight = 1 }, {}, {} })
        assert.same({ [1] = 10, [2] = 10 }, g:spread(20))
      end)

      it("leaves out who is away", function()
        local rows = { { match_blocks = 9, available = false }, { in_flight = 1 } }
        assert.same({ 1, "cold", false }, picks(g, rows))
        rows[3] = { available = false, in_flight = 500 } -- nor does it unbalance
        rows[4] = { match_blocks = 9, in_flight = 60 }
        assert.same({ 3, "prefix", true }, picks(g, rows))
        assert.same({}, picks(g, { { available = false } }))
      end)

      it("calls a fleet unbalanced when it is by both thresholds", function()
        local rows = { { match_blocks = 9, in_flight = 74 }, { in_flight = 10 } }
        assert.same({ 0, "prefix", true }, picks(g, rows)) -- 64 more
        rows[1].in_flight = 75
        assert.same({ 1, "unbalanced", false }, picks(g, rows))
        rows = { { match_blocks = 9, in_flight = 300 }, { in_flight = 200 } }
        assert.same({ 0, "prefix", true }, picks(g, rows)) -- 1.5 times
        rows[1].in_flight = 301
        assert.same({ 1, "unbalanced", false }, picks(g, rows))
        rows = { { match_blocks = 9, in_flight = 65 }, {} }
        assert.same({ 1, "unbalanced", false }, picks(g, rows)) -- 1.5 x 0
      end)
    end)
  end

  local unbalanced = { { match_blocks = 9, in_flight = 100 }, { in_flight = 3 },
    { match_blocks = 2, in_flight = 67 }, { match_blocks = 1, in_flight = 5 },
    { match_blocks = 2, in_flight = 66 }, { match_blocks = 3, in_flight = 68 } }

  it("gives up all affinity in an unbalanced fleet", function()
    assert.same({ 1, "unbalanced", false }, picks(f, unbalanced))
  end)

  it("keeps the longest match near the least loaded in mode window, however short", function()
    assert.same({ 4, "near_least", true }, picks(window, unbalanced)) -- 3 + 64 = 67
    local rows = { { match_blocks = 9, in_flight = 100 }, {}, { match_blocks = 2, in_flight = 65 } }
    assert.same({ 1, "unbalanced", false }, picks(window, rows))
  end)

  it("takes its thresholds from its params", function()
    local g = assert(fleet.policy("cache_aware", { abs = 1, rel = 2, cache_threshold = 0.5 }))
    local rows = { { match_blocks = 6, in_flight = 4 }, { in_flight = 2 } }
    assert.same({ 0, "prefix", true }, picks(g, rows))
    rows[1].in_flight = 5
    assert.same({ 1, "unbalanced", false }, picks(g, rows))
    rows[1] = { match_blocks = 5, in_flight = 3 }
    assert.same({ 1, "cold", false }, picks(g, rows))
    for name, bad in pairs { abs = -1, rel = 0.9, cache_threshold = 1.1, mode = "tree" } do
      assert.is_nil((fleet.policy("cache_aware", { [name] = bad })), name)
    end
    assert.same({ needs = 1, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
