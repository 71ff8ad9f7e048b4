local fleet = require("spec.support.fleet")

describe("preble_e2", function()
  local f = assert(fleet.policy("preble_e2"))

  -- A prompt of 1,000 tokens, after the first 50 requests; 1,000 tokens/s unless a row says else.
  local function see(rows, request)
    local asked = { prompt_tokens = 1000, serial = 100 }
    for name, value in pairs(request or {}) do asked[name] = value end
    for _, row in ipairs(rows) do
      row.prefill_tokens_per_s = row.prefill_tokens_per_s or 1000
    end
    f:see(asked, rows)
  end

  local function says(rows, request)
    see(rows, request)
    return { f:pick() }
  end

  local far = { recent_uncached_tokens = 2e4 }

  local function held(tokens, work)
    return { match_blocks = tokens / 16, match_tokens = tokens, recent_uncached_tokens = work }
  end

  it("exploits when more is cached than is not, and explores else", function()
    assert.same({ 1, "exploit", true }, says({ {}, held(512, 500) }))
    assert.same({ 0, "explore", false }, says({ {}, held(496, 500) }))
    assert.same({ 0, "explore", false }, says({ {}, held(512, 1000) }, { prompt_tokens = 1024 }))
    assert.same({ 1, "exploit", true }, says({ {}, held(512, 1000) }, { prompt_tokens = 1023 }))
  end)

  it("exploits the least work of those with the longest match", function()
    see({ held(800, 900), held(800, 700), held(784, 100), held(800, 800) }, { serial = 49 })
    assert.same({ 1, "exploit", true }, { f:pick() })
    see({ held(800, 700), held(800, 700), held(784, 100), held(800, 800) }, { serial = 48 })
    assert.equal(0, (f:pick()))
    f.picture.request.serial = 49
    assert.equal(1, (f:pick()))
  end)

  it("counts the prefill of three minutes and the decode of what is in flight", function()
    -- 2 s of prefill; or 1 s and 2 x 10 tokens of 60 ms
    local rows = { { recent_uncached_tokens = 2000 },
      { recent_uncached_tokens = 1000, in_flight = 2, output_tokens = 10, token_ms = 60 } }
    assert.same({ 0, "explore", false }, says(rows))
    rows[2].token_ms = 49
    assert.equal(1, says(rows)[1])
    for _, name in ipairs { "output_tokens", "token_ms" } do -- one unread: 6.75 s an answer
      local value = rows[2][name]
      rows[1].recent_uncached_tokens, rows[2][name] = 14499, nil
      assert.equal(0, says(rows)[1])
      rows[1].recent_uncached_tokens = 14501
      assert.equal(1, says(rows)[1])
      rows[2][name] = value
    end
  end)

  it("adds the prefill of what is not matched when it explores, not what is pending", function()
    local rows = { held(400, 1500), { recent_uncached_tokens = 1000, uncached_tokens = 9000 } }
    assert.same({ 1, "explore", false }, says(rows)) -- 1.5 + 0.6 s, 1 + 1 s
    rows[2].recent_uncached_tokens = 1101
    assert.equal(0, says(rows)[1])
  end)

  it("takes the fastest rate in the fleet, and 12,500 tokens/s before there is one", function()
    -- 1,000 tokens of prefill against 2 tokens of 60 ms
    local rows = { { recent_uncached_tokens = 1000 },
      { in_flight = 1, output_tokens = 2, token_ms = 60, prefill_tokens_per_s = 8000 } }
    assert.equal(1, says(rows)[1]) -- 125 and 120 ms
    rows[2].prefill_tokens_per_s = 9000
    assert.equal(0, says(rows)[1]) -- 111
    rows[1].prefill_tokens_per_s, rows[2].prefill_tokens_per_s = nil, nil
    f:see({ prompt_tokens = 1000, serial = 100 }, rows)
    assert.equal(0, (f:pick())) -- 80
    rows[1].recent_uncached_tokens = 1501
    f:see({ prompt_tokens = 1000, serial = 100 }, rows)
    assert.equal(1, (f:pick()))
  end)

  it("steals for the lightest from a holder with 1.5 times its work", function()
    assert.same({ 1, "exploit", true },
      says({ { recent_uncached_tokens = 10001 }, held(800, 15000), far }))
    assert.same({ 0, "steal", false },
      says({ { recent_uncached_tokens = 10000 }, held(800, 15000), far }))
    assert.same({ 1, "exploit", true },
      says({ { recent_uncached_tokens = 10000 }, held(800, 15000) }, { serial = 49 }))
  end)

  it("does not steal what would make the lightest the heavier", function()
    assert.equal("steal", says({ {}, held(800, 2000) })[2])
    assert.equal("exploit", says({ {}, held(800, 1999) })[2])
  end)

  it("counts neither holders nor work of replicas that are away", function()
    local away = held(900, 0)
    away.available = false
    assert.same({ 2, "explore", false },
      says({ away, { recent_uncached_tokens = 2 }, { recent_uncached_tokens = 1 } }))
    away.recent_uncached_tokens = 0 -- lightest by far
    assert.same({ 1, "exploit", true }, says({ away, held(800, 20000) }))
    assert.same({}, says({ away }))
  end)

  it("begins elsewhere each time among equals", function()
    see({ {}, {}, { in_flight = 1 }, {} })
    assert.same({ [0] = 15, [1] = 15, [3] = 30 }, f:spread(60))
  end)

  it("takes other params, and refuses nonsense", function()
    local never = assert(fleet.policy("preble_e2", { steal = 0 }))
    never:see({ prompt_tokens = 1000, serial = 100 }, { {}, held(800, 90000) })
    assert.same({ 1, "exploit", true }, { never:pick() })
    local slow = assert(fleet.policy("preble_e2", { fallback_tokens_per_s = 100,
      fallback_answer_ms = 1 }))
    slow:see({ prompt_tokens = 1000 }, { { recent_uncached_tokens = 1 }, { in_flight = 9 } })
    assert.equal(1, (slow:pick())) -- 10 and 9 ms
    for name, value in pairs { steal = 0.5, fallback_tokens_per_s = 0 } do
      assert.is_nil((fleet.policy("preble_e2", { [name] = value })))
    end
  end)

  it("asks for matches and work, and for no spill rule", function()
    assert.same({ needs = 33, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
