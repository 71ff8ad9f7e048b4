local ffi = require("ffi")
local fleet = require("spec.support.fleet")
local lab = require("spec.support.lab")

local ROWS = 5

describe("dualmap", function()
  local f = assert(fleet.policy("dualmap"))

  -- Sees the two candidates of a key with what is given of them, and other rows as `rest` has them.
  local function see(f_, key, first, second, request, rest)
    f_:see({}, { {}, {}, {}, {}, {} }) -- for the rings
    local a, b = f_:ring_order(key, 1)[1], nil
    for _, i in ipairs(f_:ring_order(key, 2)) do
      if i ~= a and not b then b = i end
    end
    local rows = {}
    for i = 1, ROWS do rows[i] = rest or {} end
    rows[a + 1], rows[b + 1] = first, second
    local asked = { routing_key = key, prompt_tokens = 1000 }
    for name, value in pairs(request or {}) do asked[name] = value end
    f_:see(asked, rows)
    return a, b
  end

  -- The same, and the pick: which candidate, and why.
  local function says(f_, ...)
    local a, b = see(f_, ...)
    local index, reason, affine = f_:pick()
    return { index == a and "first" or index == b and "second" or index, reason, affine }
  end

  it("names two different candidates for a key, some on every replica", function()
    local seen, same = {}, 0
    for key = 1, 300 do
      local a, b = see(f, key, {}, {})
      same = same + (f:ring_order(key, 2)[1] == a and 1 or 0)
      seen[a], seen[b] = true, true
      assert.same({ [a] = 10, [b] = 10 }, f:spread(20)) -- equal: in turn
    end
    for i = 0, ROWS - 1 do assert.is_true(seen[i]) end
    assert.is_true(same > 20, "both rings named one replica some times")
  end)

  it("prefers the longer match, then the fewer pending tokens", function()
    local longer, shorter = { match_blocks = 3, uncached_tokens = 9000 }, { match_blocks = 2 }
    local a = see(f, 7, longer, shorter)
    assert.same({ [a] = 20 }, f:spread(20))
    local _, b = see(f, 7, shorter, longer)
    assert.same({ [b] = 20 }, f:spread(20))
    assert.same({ "second", "affinity", true }, says(f, 7, shorter, longer))
    local more, fewer = { match_blocks = 3, uncached_tokens = 101 },
      { match_blocks = 3, uncached_tokens = 100 }
    see(f, 7, more, fewer)
    assert.same({ [b] = 20 }, f:spread(20))
  end)

  it("looks at nobody else, however warm and idle", function()
    local a = see(f, 7, { match_blocks = 1, in_flight = 90 }, { in_flight = 90 }, {},
      { match_blocks = 60 })
    assert.same({ [a] = 20 }, f:spread(20))
  end)

  it("keeps the preferred one up to half the SLO, and takes the sooner of two past it", function()
    -- 5 s / 2 at 6,250 tokens/s are 15,625 tokens, 840 of them this prompt's own
    local warm = { match_blocks = 10, match_tokens = 160, uncached_tokens = 14785 }
    assert.same({ "first", "affinity", true }, says(f, 9, warm, { uncached_tokens = 10 }))
    warm.uncached_tokens = 14786
    assert.same({ "second", "switched", false }, says(f, 9, warm, { uncached_tokens = 10 }))
    -- 1,000 of its own: as late
    assert.same({ "first", "busy", true }, says(f, 9, warm, { uncached_tokens = 14626 }))
    assert.same({ "second", "switched", false }, says(f, 9, warm, { uncached_tokens = 14625 }))
  end)

  it("takes the request's own SLO and the fleet's measured rate", function()
    local warm = { match_blocks = 1, uncached_tokens = 4000 }
    local function with(request, rest) return says(f, 9, warm, {}, request, rest)[2] end
    assert.equal("affinity", with({ slo_ttft_ms = 1600 })) -- 5,000 tokens
    assert.equal("switched", with({ slo_ttft_ms = 1599 }))
    local measured = { prefill_tokens_per_s = 2000 } -- 2.5 s: 5,000 tokens
    assert.equal("affinity", with({}, measured))
    assert.equal("switched", with({ prompt_tokens = 1001 }, measured))
  end)

  it("goes on along its ring when a candidate is away, and keeps the other", function()
    local kept = 0
    for key = 1, 50 do
      local a, b = see(f, key, { available = false }, {})
      local counts = f:spread(20)
      assert.is_nil(counts[a])
      local heir = f:ring_order(key, 1)[2]
      if f:ring_order(key, 2)[1] == b and heir ~= b then
        kept = kept + 1
        assert.same({ [b] = 10, [heir] = 10 }, counts)
      end
    end
    assert.is_true(kept > 10)
  end)

  it("takes the only one there is, and has no opinion without any", function()
    f:see({ routing_key = 3 }, { { available = false }, { in_flight = 4 }, { available = false } })
    assert.same({ 1, "only", false }, { f:pick() })
    f:see({ routing_key = 3 }, { { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("sends a request without a key to the fewest in flight, ties in turn", function()
    f:see({}, { { in_flight = 1 }, {}, {} })
    assert.same({ 1, "unkeyed", false }, { f:pick() })
    assert.same({ [1] = 25, [2] = 25 }, f:spread(50))
  end)

  it("takes other limits, and refuses nonsense", function()
    local g = assert(fleet.policy("dualmap",
      { slo_s = 1, switch = 1, fallback_tokens_per_s = 2000 }))
    assert.equal("affinity", says(g, 9, { match_blocks = 1, uncached_tokens = 1000 }, {})[2])
    assert.equal("switched", says(g, 9, { match_blocks = 1, uncached_tokens = 1001 }, {})[2])
    for _, name in ipairs { "slo_s", "switch", "hot", "fallback_tokens_per_s" } do
      assert.is_nil((fleet.policy("dualmap", { [name] = 0 })))
    end
    assert.is_nil((fleet.policy("dualmap", { key = "prefix" })))
  end)

  describe("by opening", function()
    local g = assert(fleet.policy("dualmap", { key = "opening" }))
    local openings

    before_each(function()
      openings = ffi.gc(ffi.new("struct kvr_window"), lab.C.kvr_window_deinit)
      lab.C.kvr_window_init(openings, ffi.new("struct kvr_window_options", { replicas_max = 1 }))
      g.picture.openings = openings
    end)

    -- Keys of `len` blocks: those from block `from` on are of another prompt.
    local function chain(len, from)
      local keys = {}
      for i = 1, len do keys[i] = from and i > from and i + 1000 * (from + 1) or i end
      return keys
    end

    local function came(keys, times)
      local array = ffi.new("uint64_t[?]", #keys, keys)
      for _ = 1, times do lab.C.kvr_picture_count_opening(openings, 0, array, #keys) end
    end

    -- The key whose two candidates share an idle fleet of 64: no other has the same two in order.
    local function same_as(keys, key, routing_key)
      local rows = {}
      for i = 1, 64 do rows[i] = {} end
      g:see({}, rows)
      local a, b = g:ring_order(key, 1)[1], nil
      for _, i in ipairs(g:ring_order(key, 2)) do
        if i ~= a and not b then b = i end
      end
      g:see({ chain = keys, routing_key = routing_key }, rows)
      assert.same({ [a] = 10, [b] = 10 }, g:spread(20))
    end

    it("takes 32 blocks, while few enough begin with them", function()
      same_as(chain(200), 32, 7)
      came(chain(200), 1)
      came(chain(200, 0), 31) -- 1 of 32 is 2 of 64 replicas
      same_as(chain(200), 32, 7)
      same_as(chain(32), 32, 7)
    end)

    it("takes 32 more as long as too many begin alike", function()
      came(chain(200), 1)
      came(chain(200, 0), 30)
      same_as(chain(200, 100), 101128, 7) -- 96 are shared, 128 are not
      same_as(chain(200, 64), 65096, 7)
      came(chain(600, 480), 5)
      same_as(chain(600, 480), 7, 7) -- no deeper ones are counted
    end)

    it("takes the routing key when too many begin alike to the end", function()
      same_as(chain(31), 7, 7)
      came(chain(127), 9)
      same_as(chain(127), 7, 7)
      g:see({ chain = chain(127) }, { { in_flight = 1 }, {}, { in_flight = 1 } })
      assert.same({ 1, "unkeyed", false }, { g:pick() })
    end)

    it("asks for openings, too, which the routing key does not need", function()
      assert.same({ 17, 1 }, { g:needs(), f:needs() })
    end)
  end)

  it("asks for matches, and for no spill rule", function()
    assert.same({ needs = 1, spill = "" }, { needs = f:needs(), spill = f:default_spill() })
  end)
end)
