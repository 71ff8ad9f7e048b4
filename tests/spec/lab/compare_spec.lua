local cells = require("spec.support.cells")
local compare = require("kvroute.compare")
local json = require("kvroute.json")
local metric = require("kvroute.metric")
local store = require("kvroute.store")

-- Compares these cells.
local function compared(records, options)
  local folder = cells.write(records)
  local ok, out = pcall(compare.read, { folder }, options or {})
  cells.remove(folder)
  if not ok then error(out, 0) end
  return out
end

-- Two policies with three repetitions each, and more.
local function pair(more)
  local out = {}
  for seed = 1, 3 do
    out[#out + 1] = { policy = "session_affinity", seed = seed, goodput = 8 + seed }
    out[#out + 1] = { policy = "prefix_affinity", seed = seed, goodput = 14 + seed }
  end
  for _, each in ipairs(more or {}) do out[#out + 1] = each end
  return out
end

-- One refusal by that rule, which names the field and two cells.
local function assert_refused(records, rule, field, ...)
  local out = compared(records)
  assert.is_nil(out.results)
  for _, refusal in ipairs(out.refusals) do
    if refusal.rule == rule and refusal.field == field then
      assert.equal(2, #refusal.cells)
      for _, part in ipairs({ ... }) do assert.truthy(refusal.text:find(part, 1, true)) end
      for _, cell in ipairs(refusal.cells) do assert.truthy(cell:find("seed %d+ %(.*%.json%)")) end
      assert.truthy(compare.text(out):find("refused: " .. rule, 1, true))
      return
    end
  end
  error(("no refusal by %s of %s: %s"):format(rule, field, json.encode(out.refusals)))
end

local workload = "sessions(n=307,skew=%s,turns=%d,system=0.3x512,seed=1,epoch=7)+%s"
local closed = "closed(users=32,think=1~0,start=0,scale=1)"

describe("compare refuses", function()
  it("cells without an SLO", function()
    assert_refused({
      { policy = "a", cell = { slo = { ttft_ms = json.null, itl_ms = json.null } } },
      { policy = "b", cell = { slo = { ttft_ms = json.null, itl_ms = json.null } } },
    }, "no SLO", "slo", "a, seed 1", "b, seed 1")
  end)

  it("more than one SLO", function()
    assert_refused(pair({ { seed = 4, cell = { slo = { ttft_ms = 660 } } } }),
      "more than one SLO", "slo.ttft_ms", "990 in session_affinity", "660 in prefix_affinity")
  end)

  it("more than one workload, by any knob of its name", function()
    assert_refused({
      { policy = "a", workload = workload:format(0, 4, closed) },
      { policy = "b", workload = workload:format(0, 8, closed) },
    }, "more than one workload", "workload.turns", "4 in a", "8 in b")
  end)

  it("more than one plan of arrivals", function()
    assert_refused({
      { policy = "a", workload = workload:format(0, 4, "rate(6,cv=0,pool=5)") },
      { policy = "b", workload = workload:format(0, 4, "rate(6,cv=1,pool=5)") },
    }, "more than one arrival plan", "arrivals.cv", "0 in a", "1 in b")
    assert_refused({
      { policy = "a", workload = workload:format(0, 4, "closed(users=32,think=1~0)") },
      { policy = "b", workload = workload:format(0, 4, "closed(users=32,think=5000~0)") },
    }, "more than one arrival plan", "arrivals.think")
  end)

  it("engines that report KV events beside others", function()
    assert_refused(pair({ { seed = 4, cell = { fleet = { kv_events = 1 } } } }),
      "KV events on and off", "fleet.kv_events", "not set in session_affinity", "1 in")
  end)

  it("two measurements under one key", function()
    assert_refused(pair({ { key = ("a"):rep(32), goodput = 3 },
      { key = ("a"):rep(32), goodput = 4 } }),
      "two measurements under one key", "result.good", "30 in", "40 in")
  end)

  it("fewer than two policies", function()
    assert_refused({ { seed = 1 }, { seed = 2 } }, "fewer than two policies", "policy")
  end)

  it("another fleet, engine, or clock", function()
    assert_refused(pair({ { seed = 4, cell = { fleet = { profile = "q" } } } }),
      "more than one fleet", "fleet.profile")
    assert_refused(pair({ { seed = 4, cell = { fleet = { kind = "emulated" } } } }),
      "more than one fleet", "fleet.kind", "simulated in", "emulated in")
  end)

  it("another router, window or program", function()
    assert_refused(pair({ { seed = 4, cell = { router = { index_nodes = 200 } } } }),
      "more than one router", "router.index_nodes")
    assert_refused(pair({ { seed = 4, cell = { measure = { warmup_s = 100 } } } }),
      "more than one window", "measure.warmup_s")
    assert_refused(pair({ { seed = 4, cell = { build = "cc" } } }),
      "more than one program", "build", "bb in", "cc in")
  end)

  it("two texts under one policy's name", function()
    assert_refused(pair({ { seed = 4, cell = { policy = { hash = "other" } } } }),
      "more than one text of a script", "policy.hash", "other in prefix_affinity, seed 4")
  end)

  it("policies that no seed has asked the same bytes", function()
    assert_refused({ { policy = "a", seed = 1 }, { policy = "b", seed = 2 } },
      "no seed in common at closed", "seed", "1 in a", "2 in b")
  end)
end)

describe("compare", function()
  it("pools repetitions: the median and its range", function()
    local out = compared(pair())
    assert.same({}, out.refusals)
    local text = compare.text(out)
    assert.truthy(text:find("session_affinity  10.0 (9.00-11.0)", 1, true), text)
    assert.truthy(text:find("prefix_affinity   16.0 (15.0-17.0)", 1, true), text)
    assert.truthy(text:find("+60 %", 1, true))
  end)

  it("takes the lower of two, as nearest rank does", function()
    local out = compared({
      { policy = "a", seed = 1, goodput = 4 }, { policy = "a", seed = 2, goodput = 6 },
      { policy = "b", seed = 1 },
    })
    assert.equal(4, out.results.pools[1]:value("goodput"))
  end)

  it("calls a difference separated only where ranges do not touch", function()
    local function versus(a, b)
      local records = {}
      for seed, goodput in ipairs(a) do
        records[#records + 1] = { policy = "a", seed = seed, goodput = goodput }
      end
      for seed, goodput in ipairs(b) do
        records[#records + 1] = { policy = "b", seed = seed, goodput = goodput }
      end
      local found = compared(records).results
      return found.pools[2]:against(found.pools[1], "goodput")
    end
    assert.equal("+100 %", versus({ 5, 6 }, { 10, 12 }).text)
    assert.is_true(versus({ 5, 6 }, { 10, 12 }).separated)
    assert.equal("in spread", versus({ 5, 10 }, { 10, 12 }).text)
    assert.is_false(versus({ 5, 10 }, { 10, 12 }).separated)
    -- One repetition has no range.
    assert.is_false(versus({ 5 }, { 10, 12 }).separated)
    assert.is_false(versus({ 5, 6 }, { 12 }).separated)
    assert.equal("+10.0 over zero", versus({ 0, 0 }, { 10, 12 }).text)
  end)

  it("lists what is excluded, and averages it nowhere", function()
    local out = compared(pair({
      { seed = 4, goodput = 1000, result = { evidence = cells.flag("cold opening") } },
    }))
    local pool = out.results.pools[2]
    assert.equal(16, pool:value("goodput"))
    assert.equal(3, #pool.results)
    local text = compare.text(out)
    assert.truthy(text:find("prefix_affinity (3 of 4)", 1, true), text)
    assert.truthy(text:find("prefix_affinity, seed 4: cold opening (because)", 1, true), text)
    local data = compare.data(out)
    assert.equal("cold opening", data.pools[2].excluded[1].flags[1].name)
    assert.equal(16, data.pools[2].median.goodput)
  end)

  it("keeps a warning's figures, and the goodput alone past saturation", function()
    local out = compared(pair({
      { seed = 4, goodput = 18, result = { evidence = cells.flag("failures", true) } },
      { seed = 5, goodput = 19, result = {
        evidence = cells.flag("past saturation", true), ttft = { p50 = 90000 } } },
    }))
    local pool = out.results.pools[2]
    assert.equal(5, #pool.results)
    assert.equal(17, pool:value("goodput"))
    assert.same({ 100, 100 }, { pool:range("ttft_p50_ms") })
    assert.truthy(compare.text(out):find("kept with a warning", 1, true))
  end)

  it("counts a record once, the copy that excludes it first", function()
    local key = ("b"):rep(32)
    local flagged = { key = key, seed = 4, result = { evidence = cells.flag("ejections") } }
    for _, order in ipairs({ { { key = key, seed = 4 }, flagged },
      { flagged, { key = key, seed = 4 } } }) do
      local pool = compared(pair(order)).results.pools[2]
      assert.equal(3, #pool.results)
      assert.equal(1, #pool.excluded)
    end
  end)

  it("shows a gap for what is not known, and never a zero", function()
    local out = compared(pair({ { seed = 4, result = { cached_tokens = json.null } } }))
    local pool = out.results.pools[2]
    assert.is_true(pool:value("hit_rate") ~= pool:value("hit_rate"))
    assert.is_false(pool:shown("hit_rate"))
  end)

  it("puts closed and open loop into tables of their own", function()
    local records = {}
    for _, each in ipairs({ { "round_robin", 1 }, { "prefix_affinity", 2 } }) do
      for _, arrivals in ipairs({ closed, "rate(6,cv=0,pool=5)" }) do
        records[#records + 1] = { policy = each[1], goodput = each[2] * (#arrivals),
          workload = workload:format(0, 4, arrivals) }
      end
    end
    local out = compared(records)
    assert.same({}, out.refusals)
    local places = out.results:places()
    assert.equal(2, #places)
    assert.equal("closed", places[1][1].regime)
    assert.equal("open", places[2][1].regime)
    assert.error(function() places[1][1]:against(places[2][1], "goodput") end)
    local text = compare.text(out)
    assert.truthy(text:find("closed loop", 1, true))
    assert.truthy(text:find("open loop", 1, true))
  end)

  it("knows load, sessions and skew as axes, others when told", function()
    local records = {}
    for _, skew in ipairs({ 0, 1.4 }) do
      for _, policy in ipairs({ "a", "b" }) do
        records[#records + 1] = { policy = policy, workload = workload:format(skew, 4, closed) }
      end
    end
    local out = compared(records)
    assert.same({ "skew" }, out.results.axes)
    assert.equal(2, #out.results:places())
    for i, policy in ipairs({ "a", "b" }) do
      records[4 + i] = { policy = policy, workload = workload:format(0, 8, closed) }
    end
    assert.equal(1, #compared(records).refusals)
    out = compared(records, { axes = { "turns" } })
    assert.same({ "skew", "turns" }, out.results.axes)
    assert.error_matches(function() compared(records, { axes = { "colour" } }) end,
      "no cell has a field colour")
  end)

  it("takes only the cells that are asked for", function()
    local records = pair({ { seed = 4, cell = { build = "cc" } } })
    assert.equal(1, #compared(records).refusals)
    local out = compared(records, { where = { { name = "build", value = "b" } } })
    assert.same({}, out.refusals)
  end)

  it("holds policies against the plainest, or the one that is named", function()
    local out = compared(pair())
    assert.equal("session_affinity", compare.data(out).baseline)
    out = compared(pair(), { baseline = "prefix_affinity" })
    assert.equal("prefix_affinity", out.results.pools[1].policy)
    assert.truthy(compare.text(out):find("-37 %%") or compare.text(out):find("-38 %%"))
    assert.error_matches(function() compared(pair(), { baseline = "nobody" }) end,
      "there is no policy nobody")
  end)

  it("has variants of a policy by the values of their params", function()
    local records = {}
    for _, weight in ipairs({ 12, 4, 0.25, 0.5, 32 }) do
      records[#records + 1] = { policy = "prefix_hash", seed = 1,
        cell = { policy = { params = { weight = weight } } } }
    end
    local order = {}
    for _, pool in ipairs(compared(records).results.pools) do
      order[#order + 1] = pool.policy:match("weight=(.*)$")
    end
    assert.same({ "0.25", "0.5", "4", "12", "32" }, order)
  end)

  it("shows what rounds to nothing as nothing", function()
    local redundant = metric.find("redundant")
    assert.same({ "0", "0", "1", "-1" }, { redundant.show(-0.01), redundant.show(0.01),
      redundant.show(0.9), redundant.show(-0.9) })
  end)

  it("names a spill rule where one policy has several", function()
    local records = {}
    for _, rule in ipairs({ "load_min", "off" }) do
      records[#records + 1] = { cell = { spill = { name = rule, hash = rule, params = {} } } }
    end
    local out = compared(records)
    assert.same({ "prefix_affinity /load_min", "prefix_affinity /off" },
      out.results:policies())
  end)

  it("says what was looked for beside us", function()
    local function notes(contamination)
      local live = { fleet = { kind = "urls" } }
      local result = { evidence = { flags = json.list({}), contamination = contamination } }
      return compare.text(compared({ { policy = "a", cell = live, result = result },
        { policy = "b", cell = live, result = result } }))
    end
    assert.truthy(notes(nil):find("contamination: not looked for", 1, true))
    assert.truthy(notes({ state = "clean" }):find("contamination: none found", 1, true))
    assert.truthy(compare.text(compared(pair())):find("contamination: virtual time", 1, true))
  end)

  it("passes over what is no cell in a folder, and refuses it by name", function()
    local folder = cells.write(pair())
    finally(function() cells.remove(folder) end)
    for i, text in ipairs({ "{", "[]", '{"key":"a"}', '{"key":"a","cell":{},"result":{}}',
      '{"key":"a","cell":{"fleet":{},"workload":{},"measure":{},"slo":{},"policy":{}},"result":{}}',
    }) do
      local path = ("%s/no_cell_%d.json"):format(folder, i)
      store.write_file(path, text)
      assert.error_matches(function() compare.read({ path }, {}) end, "no_cell_%d.json is no cell")
    end
    assert.equal(2, #compare.read({ folder }, {}).results.pools)
    assert.error_matches(function() compare.read({ folder .. "/nowhere" }, {}) end, "cannot read")
  end)

  it("says how many cells nobody has judged", function()
    local text = compare.text(compared(pair()))
    assert.truthy(text:find("not judged by their drift: 6 cells", 1, true))
    local judged = { evidence = { flags = json.list({}), drift = { causes = json.list({}) } } }
    text = compare.text(compared({ { policy = "a", result = judged },
      { policy = "b", result = judged } }))
    assert.is_nil(text:find("not judged", 1, true))
  end)

  it("writes CSV, a row a pool", function()
    local text = compare.csv(compared(pair()))
    local head, first = text:match("^(.-)\n(.-)\n")
    local columns = "policy,regime,repetitions,excluded,goodput_against_percent,separated,"
    assert.equal(1, head:find(columns, 1, true))
    assert.truthy(first:find("^session_affinity,closed,3,0,,,10,9,11,"), first)
  end)

  it("fits a hundred columns", function()
    local flags = {}
    for i, name in ipairs({ "past saturation", "failures", "late", "out of rotation" }) do
      flags[i] = { name = name, text = "what is known of it, in some words" }
    end
    local records = pair({ { seed = 4, result = { evidence = { flags = flags } } } })
    for line in compare.text(compared(records)):gmatch("[^\n]+") do
      assert.is_true(#line <= 100, line)
    end
  end)
end)

describe("redundant prefill", function()
  local function tokens(policy, seed, requests, prompt, cached, more)
    local result = { requests = requests, success = requests, prompt_tokens = prompt,
      cached_tokens = cached }
    for name, value in pairs(more or {}) do result[name] = value end
    return { policy = policy, seed = seed, result = result }
  end

  -- In a closed loop the better policy gets more requests through, and so computes more in all:
  -- totals made it look the worse.
  it("is held a request each against the best policy, not in totals", function()
    local found = compared({
      tokens("round_robin", 1, 100, 300000, 100000),     -- 2,000 a request
      tokens("prefix_affinity", 1, 500, 1500000, 1150000), -- 700, but 350,000 in all
    }).results
    assert.equal(1300, found.pools[1]:value("redundant"))
    assert.equal(0, found.pools[2]:value("redundant"))
  end)

  it("compares the same bytes: seed by seed", function()
    local found = compared({
      tokens("round_robin", 1, 100, 300000, 100000), -- 2,000
      tokens("round_robin", 2, 100, 300000, 200000), -- 1,000
      tokens("prefix_affinity", 1, 100, 300000, 150000), -- 1,500
      tokens("prefix_affinity", 2, 100, 300000, 210000), -- 900
    }).results
    assert.equal((500 + 100) / 2, found.pools[1]:value("redundant"))
    assert.same({ 100, 500 }, { found.pools[1]:range("redundant") })
    assert.same({ 0, 0 }, { found.pools[2]:range("redundant") })
  end)

  it("takes the best, whichever it is", function()
    local found = compared({
      tokens("round_robin", 1, 100, 300000, 200000), -- 1,000
      tokens("prefix_affinity", 1, 100, 300000, 150000), -- 1,500
    }).results
    assert.equal(0, found.pools[1]:value("redundant"))
    assert.equal(500, found.pools[2]:value("redundant"))
  end)

  it("is unknown where a policy has no usable cell", function()
    local found = compared({
      tokens("round_robin", 1, 100, 300000, 100000),
      tokens("prefix_affinity", 1, 100, 300000, 200000, { evidence = cells.flag("ejections") }),
    }).results
    local value = found.pools[1]:value("redundant")
    assert.is_true(value ~= value)
  end)
end)
