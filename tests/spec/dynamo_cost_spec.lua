local fleet = require("spec.support.fleet")

describe("dynamo_cost", function()
  local f = assert(fleet.policy("dynamo_cost"))

  local chain = {}
  for i = 1, 100 do chain[i] = i end

  it("adds what is to be prefilled, less the match, and the blocks in flight", function()
    -- 100 blocks of 10 tokens
    local rows = { { uncached_tokens = 300, active_blocks = 90 }, -- 1300 + 900 + 1000
      { match_tokens = 800, active_blocks = 201 },                -- 200 + 2010 + 1000
      { uncached_tokens = 1500, match_tokens = 900, active_blocks = 100, active_match_blocks = 30 },
    }                                                             -- 1600 + 1000 + 700
    f:see({ prompt_tokens = 1000, chain = chain }, rows)
    assert.same({ 0, "dynamo_cost", false }, { f:pick() })
    rows[2].active_blocks = 199
    f:see({ prompt_tokens = 1000, chain = chain }, rows)
    assert.same({ [1] = 30 }, f:spread(30))
    rows[3].active_match_blocks = 42
    f:see({ prompt_tokens = 1000, chain = chain }, rows)
    assert.same({ [2] = 30 }, f:spread(30))
  end)

  it("ignores requests in flight and weights by default, and blocks without a prompt", function()
    local rows = { { in_flight = 90 }, { active_blocks = 1, weight = 9 } }
    f:see({ prompt_tokens = 1000, chain = chain }, rows)
    assert.same({ [0] = 30 }, f:spread(30))
    f:see({}, rows)
    assert.is_true(f:spread(100)[1] > 10)
  end)

  it("breaks ties at random, among available rows", function()
    f:see({ prompt_tokens = 100 }, { {}, { available = false }, {}, { uncached_tokens = 1 } })
    local counts = f:spread(4000)
    assert.is_nil(counts[1] or counts[3])
    assert.is_true(math.abs(counts[0] - 2000) < 4 * 32, counts[0]) -- standard deviation 31.6
    f:see({}, { { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("never goes below nothing to prefill", function()
    local g = assert(fleet.policy("dynamo_cost", { overlap_credit = 3 }))
    g:see({ prompt_tokens = 100 }, { { match_tokens = 60 }, { match_tokens = 40 } })
    local counts = g:spread(4000) -- 100 - 180 and 100 - 120 are both nothing
    assert.is_true(math.abs(counts[0] - 2000) < 4 * 32, counts[0])
  end)

  it("takes scale, credit and the weight of a request from its params", function()
    local rows = { { uncached_tokens = 100 }, { active_blocks = 15 } }
    local g = assert(fleet.policy("dynamo_cost", { prefill_load_scale = 2 }))
    f:see({ prompt_tokens = 1000, chain = chain }, rows)
    g:see({ prompt_tokens = 1000, chain = chain }, rows)
    assert.same({ 0, 1 }, { (f:pick()), (g:pick()) })
    rows = { { match_tokens = 100, uncached_tokens = 60 }, {} }
    g = assert(fleet.policy("dynamo_cost", { overlap_credit = 0.5 }))
    f:see({ prompt_tokens = 100 }, rows)
    g:see({ prompt_tokens = 100 }, rows)
    assert.same({ 0, 1 }, { (f:pick()), (g:pick()) })
    rows = { { in_flight = 2 }, { active_blocks = 15 } }
    g = assert(fleet.policy("dynamo_cost", { request_tokens = 100 }))
    f:see({ prompt_tokens = 1000, chain = chain }, rows)
    g:see({ prompt_tokens = 1000, chain = chain }, rows)
    assert.same({ 0, 1 }, { (f:pick()), (g:pick()) })
    for _, name in ipairs { "prefill_load_scale", "overlap_credit", "request_tokens",
      "temperature" } do
      assert.is_nil((fleet.policy("dynamo_cost", { [name] = -1 })), name)
    end
  end)

  it("draws by softmax over the range of costs when it has a temperature", function()
    local g = assert(fleet.policy("dynamo_cost", { temperature = 0.5 }))
    g:see({ prompt_tokens = 100 }, { {}, { uncached_tokens = 500 }, { uncached_tokens = 1000 } })
    local counts, n = g:spread(20000), 20000
    local sum = 1 + math.exp(-1) + math.exp(-2)
    for i = 0, 2 do
      local p = math.exp(-i) / sum
      assert.is_true(math.abs(counts[i] - n * p) < 4 * math.sqrt(n * p * (1 - p)), i)
    end
    g:see({ prompt_tokens = 100 }, { {}, {} })
    assert.is_true(math.abs(g:spread(4000)[0] - 2000) < 4 * 32)
  end)

  it("asks for matches and active blocks, and for no spill rule", function()
    assert.same({ needs = 65, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
