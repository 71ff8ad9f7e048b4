local fleet = require("spec.support.fleet")

describe("llmd_sticky", function()
  local f = assert(fleet.policy("llmd_sticky"))
  local chain = {}
  for i = 1, 15 do chain[i] = i end

  local function see(rows)
    f:see({ chain = chain, prompt_tokens = 240 }, rows)
  end

  it("keeps to replicas that hold four fifths of the blocks, however busy", function()
    see({ {}, { match_blocks = 12, match_tokens = 192, in_flight = 99, uncached_tokens = 5000 },
      { match_blocks = 11, match_tokens = 176 } })
    assert.same({ 1, "sticky", true }, { f:pick() })
    assert.same({ [1] = 20 }, f:spread(20))
  end)

  it("takes the fewest tokens to prefill among them, ties rotating", function()
    see({ { match_blocks = 12, match_tokens = 192, uncached_tokens = 100 },
      { match_blocks = 15, match_tokens = 240, uncached_tokens = 147 },
      { match_blocks = 12, match_tokens = 192, uncached_tokens = 100 }, {} })
    assert.same({ [1] = 20 }, f:spread(20)) -- 148, 147, 148
    see({ { match_blocks = 12, match_tokens = 192, uncached_tokens = 100 },
      { match_blocks = 15, match_tokens = 240, uncached_tokens = 148 }, {} })
    assert.same({ [0] = 10, [1] = 10 }, f:spread(20))
  end)

  it("lets go when the best of them is 286,704 tokens behind the best of all", function()
    local rows = { { match_blocks = 12, match_tokens = 192, uncached_tokens = 286704 + 50 },
      { uncached_tokens = 50 }, { uncached_tokens = 51 } }
    see(rows)
    assert.same({ 0, "sticky", true }, { f:pick() })
    rows[1].uncached_tokens = rows[1].uncached_tokens + 1
    see(rows)
    assert.same({ 1, "saturated", false }, { f:pick() })
    rows[2].available = false -- only those that are there count
    see(rows)
    assert.same({ 0, "sticky", true }, { f:pick() })
    rows[3] = { match_blocks = 13, match_tokens = 208, uncached_tokens = 286704 }
    rows[2].available = nil
    see(rows)
    assert.same({ 2, "sticky", true }, { f:pick() })
  end)

  it("sends the others to the fewest tokens to prefill, their match counted", function()
    see({ { uncached_tokens = 100 }, { uncached_tokens = 150, match_blocks = 11,
      match_tokens = 176 }, { uncached_tokens = 100 } })
    assert.same({ 1, "cold", false }, { f:pick() })
    f:see({ prompt_tokens = 10 }, { {}, {} }) -- a prompt without a block
    assert.same({ 0, "cold", false }, { f:pick() })
    assert.same({ [0] = 10, [1] = 10 }, f:spread(20))
    see({ { available = false, match_blocks = 15 }, { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("takes ratio and gap from its params", function()
    local g = assert(fleet.policy("llmd_sticky",
      { hit_ratio = 0.5, tokens_per_s = 100, max_gap_s = 2 }))
    local rows = { { match_blocks = 8, match_tokens = 128, uncached_tokens = 200 }, {} }
    g:see({ chain = chain, prompt_tokens = 240 }, rows)
    assert.same({ 0, "sticky", true }, { g:pick() })
    rows[1].uncached_tokens = 201
    g:see({ chain = chain, prompt_tokens = 240 }, rows)
    assert.same({ 1, "saturated", false }, { g:pick() })
    rows[1] = { match_blocks = 7 }
    g:see({ chain = chain, prompt_tokens = 240 }, rows)
    assert.equal("cold", (select(2, g:pick())))
    for name, bad in pairs { hit_ratio = 0, tokens_per_s = 0, max_gap_s = -1 } do
      assert.is_nil((fleet.policy("llmd_sticky", { [name] = bad })), name)
    end
    assert.is_nil((fleet.policy("llmd_sticky", { hit_ratio = 1.1 })))
    assert.same({ needs = 1, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
