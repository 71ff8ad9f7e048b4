-- Pools, comparisons and reports over made-up results.
local cjson = require("cjson")
local results = require("kvroute.results")
local report = require("kvroute.report")

describe("results", function()
  local function result(values)
    local out = {
      requests = 100, success = 100, good = 90, failed = 0, dropped = 0, unfinished = 0,
      prompt_tokens = 1000, cached_tokens = 500, goodput_per_s = 1, ttft = { p50 = 100 },
    }
    for name, value in pairs(values or {}) do out[name] = value end
    return out
  end

  local number = 0
  -- Chains and records of cells { policy, at, seed, result, regime }; no result: not run.
  local function make(cells, axes)
    local chains, records = {}, {}
    for i, each in ipairs(cells) do
      number = number + 1
      local key = ("%032x"):format(number)
      chains[i] = { {
        key = key, policy = each[1], at = each[2] or {}, seed = each[3] or 1,
        regime = each.regime or "closed",
        spec = {
          policy = { name = each[1], hash = ("a"):rep(16), params = {} }, spill = cjson.null,
          fleet = { profile = "p" }, slo = {}, build = ("b"):rep(32),
        },
      } }
      if each[4] then records[key] = { result = each[4] } end
    end
    return results.new("try", axes or {}, chains, records)
  end

  it("pools repetitions to the median that was measured, with the range", function()
    local found = make({
      { "a", {}, 1, result({ goodput_per_s = 5 }) }, { "a", {}, 2, result({ goodput_per_s = 3 }) },
      { "a", {}, 3, result({ goodput_per_s = 4 }) }, { "a", {}, 4, result({ goodput_per_s = 9 }) },
    })
    local pool = found:find("a")
    assert.equal(4, pool:value("goodput"))
    assert.same({ 3, 9 }, { pool:range("goodput") })
    assert.equal("4.00 (3.00-9.00)", pool:shown("goodput", true))
  end)

  it("pools shares as sums over sums", function()
    local found = make({
      { "a", {}, 1, result({ prompt_tokens = 1000, cached_tokens = 900 }) },
      { "a", {}, 2, result({ prompt_tokens = 9000, cached_tokens = 900 }) },
    })
    assert.equal(0.18, found:find("a"):value("hit_rate"))
  end)

  it("does not know what one repetition does not know, and says a dash", function()
    local unread = result()
    unread.cached_tokens = nil
    local found = make({ { "a", {}, 1, result() }, { "a", {}, 2, unread } })
    local value = found:find("a"):value("hit_rate")
    assert.is_true(value ~= value)
    assert.is_false(found:find("a"):shown("hit_rate"))
  end)

  it("has the median of what no metric names, or nothing where one does not know", function()
    local found = make({
      { "a", {}, 1, result({ own = { 3 } }) }, { "a", {}, 2, result({ own = { 1 } }) },
      { "a", {}, 3, result({ own = { 2 } }) }, { "b", {}, 1, result({ own = { 1 } }) },
      { "b", {}, 2, result() }, { "c", {}, 1 },
    })
    local function own(r) return r.own and r.own[1] end
    assert.same({ 3, 1, 2 }, found:find("a"):each(own))
    assert.equal("2.0", found:find("a"):median(own, "%.1f"))
    assert.is_false(found:find("b"):median(own, "%.1f"))
    assert.is_false(found:find("c"):median(own, "%.1f"))
  end)

  it("has a table for each value of an axis", function()
    local found = make({
      { "a", { skew = 0 }, 1, result() }, { "a", { skew = 1 }, 1, result({ good = 1 }) },
      { "b", { skew = 0 }, 1, result({ good = 2 }) },
    }, { "skew" })
    local text = found:tables("skew", { 1, 0 }, "skew %g", { "policy", "good" }, function(pool)
      return { pool.policy, pool.results[1].good }
    end)
    local first, second = text:match("^(skew 1\n.*)(skew 0\n.*)$")
    assert.is_truthy(first:find("\na +1\n"), text)
    assert.is_nil(first:find("\nb"), text)
    assert.is_truthy(second:find("\na +90\nb +2\n"), text)
  end)

  it("compares only where ranges do not touch", function()
    local function pair(a, b)
      local cells = {}
      for i, value in ipairs(a) do cells[i] = { "a", {}, i, result({ goodput_per_s = value }) } end
      for i, value in ipairs(b) do
        cells[#cells + 1] = { "b", {}, i, result({ goodput_per_s = value }) }
      end
      local found = make(cells)
      return found:find("b"):against(found:find("a"), "goodput").text
    end
    assert.equal("+50 %", pair({ 10, 9.9, 10.1 }, { 15, 14, 16 }))
    assert.equal("-50 %", pair({ 10, 9.9, 10.1 }, { 5, 6, 4 }))
    assert.equal("in spread", pair({ 10, 12, 14 }, { 14, 15, 16 }))
    assert.equal("+50 %, once", pair({ 10 }, { 15 }))
    assert.equal("+2.00 over zero", pair({ 0, 0 }, { 2, 2 }))
  end)

  it("never compares a closed loop with an open one", function()
    local found = make({
      { "a", {}, 1, result() }, { "b", {}, 1, result(), regime = "open" },
    })
    assert.has_error(function() found:find("b"):against(found:find("a"), "goodput") end,
      "a closed loop is not compared with an open one")
    assert.equal(2, #found:places())
    local text = report.text(found, { metrics = { "goodput" } })
    assert.is_truthy(text:find("^closed loop\n"))
    assert.is_truthy(text:find("\nopen loop\n"))
    local matrix = report.text(found, { matrix = "goodput" })
    assert.is_truthy(matrix:find("closed loop\n"))
    assert.is_truthy(matrix:find("open loop\n"))
  end)

  it("shows what has not been run as such", function()
    local found = make({
      { "a", { skew = 1 }, 1, result() }, { "a", { skew = 1 }, 2 }, { "b", { skew = 1 }, 1 },
      { "b", { skew = 1 }, 2 },
    }, { "skew" })
    assert.equal(3, found.missing)
    local text = report.text(found, { metrics = { "goodput" } })
    assert.is_truthy(text:find("skew 1", 1, true))
    assert.is_truthy(text:find("a (1 of 2)", 1, true), text)
    assert.is_truthy(text:find("b (not run)", 1, true), text)
  end)

  it("are data and CSV with a line a cell", function()
    local found = make({
      { "a", { skew = 0 }, 1, result() }, { "a", { skew = 0 }, 2, result({ goodput_per_s = 3 }) },
      { "b, c", { skew = 0 }, 1, result() },
    }, { "skew" })
    local csv = found:csv()
    assert.equal(4, select(2, csv:gsub("\n", "")))
    assert.is_truthy(csv:find("\na,0,1,closed,p,aaaaaaaaaaaaaaaa,,,bbbb", 1, true), csv)
    assert.is_truthy(csv:find('\n"b, c",0,1,', 1, true), csv)
    local data = found:data()
    assert.equal(2, #data.pools)
    assert.equal(1, data.pools[1].median.goodput)
    assert.equal(2, #data.pools[1].repetitions)
    assert.is_nil(data.pools[1].median.itl_p50_ms)
  end)

  it("names places that are yes or no", function()
    local csv = make({
      { "a", { on = true }, 1, result() }, { "a", { on = false }, 1, result() },
    }, { "on" }):csv()
    assert.is_truthy(csv:find("\na,true,1,closed,", 1, true), csv)
    assert.is_truthy(csv:find("\na,false,1,closed,", 1, true), csv)
  end)

  it("finds pools by policy and place", function()
    local found = make({
      { "a", { skew = 0, users = 8 }, 1, result() }, { "a", { skew = 1, users = 8 }, 1, result() },
    }, { "skew", "users" })
    assert.equal("skew 1, users 8", found:find("a", { skew = 1 }).place)
    assert.is_nil(found:find("a", { skew = 2 }))
    assert.is_nil(found:find("b"))
    assert.same({ "a" }, found:policies())
  end)
end)
