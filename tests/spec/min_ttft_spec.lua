local fleet = require("spec.support.fleet")

describe("min_ttft", function()
  local f = assert(fleet.policy("min_ttft"))

  it("weighs what is pending against what is missing", function()
    f:see({ prompt_tokens = 1000 }, { { uncached_tokens = 300 },
      { uncached_tokens = 900, match_tokens = 700 },
      { uncached_tokens = 5000, match_tokens = 990 } })
    assert.same({ 1, "min_ttft", false }, { f:pick() }) -- 1,300, 1,200 and 5,010
    f:see({ prompt_tokens = 1000 }, { { uncached_tokens = 199 },
      { uncached_tokens = 900, match_tokens = 700 } })
    assert.same({ [0] = 50 }, f:spread(50))
  end)

  it("counts a match beyond the prompt as all of it", function()
    f:see({ prompt_tokens = 100 }, { { uncached_tokens = 0 },
      { uncached_tokens = 50, match_tokens = 160 } })
    assert.equal(1, (f:pick()))
    f:see({ prompt_tokens = 100 }, { { uncached_tokens = 0 },
      { uncached_tokens = 101, match_tokens = 960 } })
    assert.equal(0, (f:pick()))
  end)

  it("divides by weight and ramp", function()
    local rows = { { uncached_tokens = 1500 }, { uncached_tokens = 3000, weight = 2 } }
    f:see({ prompt_tokens = 100 }, rows) -- 1,600 and 1,550
    assert.equal(1, (f:pick()))
    rows[2].ramp = 0.9
    f:see({ prompt_tokens = 100 }, rows)
    assert.equal(0, (f:pick()))
  end)

  it("rotates ties, and leaves out who is away", function()
    f:see({ prompt_tokens = 100 }, { {}, { available = false, match_tokens = 96 }, {},
      { uncached_tokens = 1 } })
    assert.same({ [0] = 25, [2] = 25 }, f:spread(50))
    f:see({ prompt_tokens = 100 }, { { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("asks for matches, and for no spill rule", function()
    assert.same({ needs = 1, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
