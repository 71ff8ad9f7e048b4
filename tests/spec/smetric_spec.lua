local fleet = require("spec.support.fleet")

describe("smetric", function()
  local f = assert(fleet.policy("smetric"))

  it("sends a first turn to the least load, whoever matches", function()
    local rows = { { in_flight = 2, weight = 4, match_blocks = 0 }, { in_flight = 1 },
      { in_flight = 3, match_blocks = 9, match_tokens = 144 } }
    f:see({ turn = 1, prompt_tokens = 200 }, rows)
    assert.same({ 0, "first_turn", false }, { f:pick() })
    assert.same({ [0] = 20 }, f:spread(20))
    f:see({ turn = 1 }, { {}, { available = false }, {} })
    assert.same({ [0] = 10, [2] = 10 }, f:spread(20))
  end)

  it("sends a later turn to the longest match, among equals to the least to prefill", function()
    local rows = { {}, { in_flight = 50, match_blocks = 9, match_tokens = 144 },
      { match_blocks = 8, match_tokens = 128 } }
    f:see({ turn = 2, prompt_tokens = 200 }, rows)
    assert.same({ 1, "session", true }, { f:pick() })
    rows[3] = { match_blocks = 9, match_tokens = 144, uncached_tokens = 10 }
    f:see({ turn = 5, prompt_tokens = 200 }, rows)
    assert.same({ [1] = 20 }, f:spread(20))
    rows[2].uncached_tokens = 10
    f:see({ turn = 5, prompt_tokens = 200 }, rows)
    assert.same({ [1] = 10, [2] = 10 }, f:spread(20))
  end)

  it("takes an unknown turn for a later one, and without a match the least load", function()
    local rows = { { in_flight = 1 }, { in_flight = 2, match_blocks = 1, match_tokens = 16 } }
    f:see({ turn = 0, prompt_tokens = 200 }, rows)
    assert.same({ 1, "session", true }, { f:pick() })
    rows[2].match_blocks = 0
    for turn = 0, 2, 2 do
      f:see({ turn = turn, prompt_tokens = 200 }, rows)
      assert.same({ 0, "cold", false }, { f:pick() })
    end
    rows[2] = { available = false, match_blocks = 9 }
    f:see({ turn = 2, prompt_tokens = 200 }, rows)
    assert.same({ 0, "cold", false }, { f:pick() })
  end)

  -- SLO of a prompt of 2000 tokens: 1125 ms.
  local function home_with(tokens, rate, params)
    local g = params and assert(fleet.policy("smetric", params)) or f
    g:see({ turn = 2, prompt_tokens = 2000 }, {
      { in_flight = 9, match_blocks = 100, match_tokens = 1600, uncached_tokens = tokens - 400,
        prefill_tokens_per_s = rate },
      { in_flight = 3 }, { in_flight = 2, prefill_tokens_per_s = rate and rate / 2 },
    })
    return { g:pick() }
  end

  it("leaves home when its first token would take longer than the SLO", function()
    assert.same({ 0, "session", true }, home_with(9000, 8000)) -- 1125 ms
    assert.same({ 2, "over_slo", false }, home_with(9001, 8000))
  end)

  it("estimates by 16 tokens a millisecond, as its SLO does, until a rate is measured", function()
    assert.same({ 0, "session", true }, home_with(18000))
    assert.same({ 2, "over_slo", false }, home_with(18001))
  end)

  it("takes SLO and slack from its params", function()
    assert.same({ 2, "over_slo", false }, home_with(4501, 8000, { slack = 0.5 }))
    assert.same({ 0, "session", true }, home_with(4500, 8000, { slack = 0.5 }))
    assert.same({ 0, "session", true }, home_with(16000, 8000, { base_ms = 0, per_1k_ms = 1000 }))
    assert.same({ 2, "over_slo", false }, home_with(16001, 8000, { base_ms = 0, per_1k_ms = 1000 }))
    for name, bad in pairs { base_ms = -1, per_1k_ms = 0, slack = 0 } do
      assert.is_nil((fleet.policy("smetric", { [name] = bad })), name)
    end
  end)

  it("has no opinion when nothing is available, and asks for matches", function()
    for turn = 0, 2 do
      f:see({ turn = turn }, { { available = false, match_blocks = 3 } })
      assert.same({}, { f:pick() })
    end
    assert.same({ needs = 1, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
