local ffi = require("ffi")
local fleet = require("spec.support.fleet")
local lab = require("spec.support.lab")

describe("lmetric", function()
  local f = assert(fleet.policy("lmetric"))

  it("takes the least product of tokens ahead and requests in flight with this one", function()
    f:see({ prompt_tokens = 1000 }, {
      { uncached_tokens = 500, in_flight = 1 },  -- 1500 x 2
      { match_tokens = 600, in_flight = 6 },     -- 400 x 7
      { uncached_tokens = 2000 },                -- 3000 x 1
    })
    assert.same({ [1] = 30 }, f:spread(30))
    assert.same({ 1, "lmetric", false }, { f:pick() })
  end)

  it("counts at least one token, so that load decides among whole matches", function()
    f:see({ prompt_tokens = 64 }, {
      { match_tokens = 64, in_flight = 3 }, { match_tokens = 64, in_flight = 2 }, {},
    })
    assert.same({ [1] = 30 }, f:spread(30)) -- 4, 3, 64
  end)

  it("ignores weights, rotates ties, and leaves out who is away", function()
    f:see({ prompt_tokens = 100 }, {
      { in_flight = 1 }, { available = false }, { in_flight = 1, weight = 4 },
    })
    assert.same({ [0] = 30, [2] = 60 }, f:spread(90)) -- the start rotates over all three rows
    f:see({ prompt_tokens = 100 }, { { available = false } })
    assert.same({}, { f:pick() })
  end)

  it("asks for matches and openings, and for no spill rule", function()
    assert.same({ needs = 17, spill = "", params = "class_blocks=4" },
      { needs = f:needs(), spill = f:default_spill(), params = f:params() })
  end)

  it("takes powers of two as depth of a class", function()
    for _, blocks in ipairs { 0, 1, 8, 512 } do
      assert.is_truthy(fleet.policy("lmetric", { class_blocks = blocks }))
    end
    for _, blocks in ipairs { -1, 3, 0.5, 1024 } do
      assert.is_nil((fleet.policy("lmetric", { class_blocks = blocks })))
    end
  end)

  describe("guard", function()
    local hot, cold = { 1, 2, 3, 4, 5 }, { 11, 12, 13, 14, 15 }
    local openings, chains

    local function key_of(chain)
      local keys = ffi.new("uint64_t[?]", #chain)
      for i, key in ipairs(chain) do keys[i - 1] = key end
      return keys
    end

    before_each(function()
      f = assert(fleet.policy("lmetric"))
      openings = ffi.gc(ffi.new("struct kvr_window"), lab.C.kvr_window_deinit)
      lab.C.kvr_window_init(openings, ffi.new("struct kvr_window_options", { replicas_max = 1 }))
      f.picture.openings = openings
      chains = { [hot] = key_of(hot), [cold] = key_of(cold) }
    end)

    local function came(chain, times)
      for _ = 1, times do lab.C.kvr_picture_count_opening(openings, 0, chains[chain], #chain) end
    end

    -- Row 0 holds the class, and its product is the least.
    local function see(chain, holder)
      f:see({ prompt_tokens = 80, chain = chain, serial = 0 }, {
        holder or { match_blocks = 4, match_tokens = 64 }, {}, {}, { available = false },
        { match_blocks = 3, match_tokens = 48 },
      })
    end

    it("leaves the holders out after twice as many in a row", function()
      came(hot, 1)
      came(cold, 2) -- 1 / 2 > 1 / 3
      see(hot)
      for _ = 1, 2 do assert.same({ 0, "lmetric", false }, { f:pick() }) end
      for _ = 1, 3 do assert.same({ 4, "hot_prefix", false }, { f:pick() }) end
    end)

    it("waits for an alarm: a share above that of the holders", function()
      came(hot, 1)
      came(cold, 3) -- 1 / 3 > 1 / 3 is false
      see(hot)
      for _ = 1, 9 do assert.same({ 0, "lmetric", false }, { f:pick() }) end
      came(hot, 1)
      for _ = 1, 2 do assert.equal(0, (f:pick())) end
      assert.equal(4, (f:pick()))
      came(cold, 9)
      assert.equal(0, (f:pick()))
    end)

    it("counts from the beginning when the product leads elsewhere", function()
      came(hot, 9)
      see(hot)
      for _ = 1, 2 do assert.equal(0, (f:pick())) end
      see(hot, { match_blocks = 4, match_tokens = 64, in_flight = 9 })
      assert.same({ 4, "lmetric", false }, { f:pick() })
      see(hot)
      for _ = 1, 2 do assert.equal(0, (f:pick())) end
      assert.equal(4, (f:pick()))
    end)

    it("counts each class for itself, and goes on after a reload", function()
      came(hot, 5)
      came(cold, 4)
      see(hot)
      assert.equal(0, (f:pick()))
      see(cold)
      assert.equal(0, (f:pick()))
      assert.equal(0, (f:pick()))
      see(hot)
      assert.equal(0, (f:pick()))
      assert.equal(4, (f:pick()))
      see(cold)
      assert(f:reload())
      assert.equal(4, (f:pick()))
    end)

    it("is silent where all hold the class, for shorter prompts, and when it is off", function()
      came(hot, 9)
      f:see({ prompt_tokens = 80, chain = hot }, {
        { match_blocks = 4, match_tokens = 64 }, { match_blocks = 4, match_tokens = 64 } })
      assert.same({ [0] = 15, [1] = 15 }, f:spread(30))
      see({ 1, 2, 3 })
      for _ = 1, 9 do assert.equal(0, (f:pick())) end
      local off = assert(fleet.policy("lmetric", { class_blocks = 0 }))
      off.picture.openings = openings
      f = off
      see(hot)
      for _ = 1, 9 do assert.equal(0, (f:pick())) end
    end)
  end)
end)
