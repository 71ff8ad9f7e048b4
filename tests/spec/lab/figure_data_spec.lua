local cells = require("spec.support.cells")
local figure_data = require("kvroute.figure_data")
local results = require("kvroute.results")

-- Results with the goodput of each policy's seeds at each place.
local function found(places)
  local chains, records = {}, {}
  for _, place in ipairs(places) do
    for policy, goodputs in pairs(place.goodput) do
      for seed, goodput in ipairs(goodputs) do
        local result = place.ttft and { ttft = { p50 = place.ttft[policy] } } or place.result
        local record = cells.record({ policy = policy, seed = seed, goodput = goodput,
          result = result })
        chains[#chains + 1] = { { key = record.key, spec = record.cell, policy = policy,
          at = place.at, seed = seed, regime = "closed" } }
        records[record.key] = record
      end
    end
  end
  return results.new("x", { "ws", "skew" }, chains, records)
end

local grid = { x = { axis = "skew", label = "skew" }, y = { axis = "ws", label = "working set" } }

describe("data of a figure", function()
  it("is medians with their ranges, over an axis", function()
    local panel = figure_data.over(found({
      { at = { ws = 8, skew = 0 }, goodput = { a = { 4, 5, 9 } } },
      { at = { ws = 1, skew = 0 }, goodput = { a = { 7, 6, 8 } } },
    }), "goodput", "ws", { label = "working set" })
    assert.equal("goodput (requests/s)", panel.y.label)
    local points = panel.series[1].points
    assert.equal(1, points[1].x)
    assert.equal(7, points[1].y)
    assert.same({ 8, 5, 4, 9 }, { points[2].x, points[2].y, points[2].low, points[2].high })
  end)

  it("is in percent where the axis says so", function()
    local panel = figure_data.over(found({ { at = { ws = 1 }, goodput = { a = { 1, 1 } } } }),
      "hit_rate", "ws", { label = "working set" })
    assert.equal(50, panel.series[1].points[1].y)
    assert.truthy(panel.y.label:find("(%)", 1, true))
  end)

  it("leaves out what is not asked for", function()
    local panel = figure_data.over(found({
      { at = { ws = 1, skew = 0 }, goodput = { a = { 1 }, b = { 2 } } },
      { at = { ws = 1, skew = 1 }, goodput = { a = { 3 }, b = { 4 } } },
    }), "goodput", "ws", { label = "working set" }, { at = { skew = 1 }, policies = { "b" } })
    assert.equal(1, #panel.series)
    assert.equal(4, panel.series[1].points[1].y)
  end)

  it("marks what something speaks against, and leaves gaps", function()
    local panel = figure_data.over(found({
      { at = { ws = 1 }, goodput = { a = { 1, 2 } } },
      { at = { ws = 2 }, goodput = { a = { 3 } },
        result = { evidence = cells.flag("failures", true) } },
      { at = { ws = 3 }, goodput = { a = { 9 } }, result = { evidence = cells.flag("late") } },
    }), "goodput", "ws", { label = "working set" })
    local points = panel.series[1].points
    assert.is_nil(points[1].marked)
    assert.is_true(points[2].marked)
    assert.is_nil(points[3].y)
  end)

  it("is one policy against another: grey and said so where ranges touch", function()
    local heat = figure_data.against(found({
      { at = { ws = 1, skew = 0 }, goodput = { a = { 10, 11 }, b = { 5, 6 } } },
      { at = { ws = 1, skew = 1 }, goodput = { a = { 10, 11 }, b = { 10, 12 } } },
    }), "goodput", grid, "a", "b")
    assert.same({ 0, 1 }, heat.x.values)
    assert.same({ 1 }, heat.y.values)
    assert.equal("+100 %\n10.0 : 5.00", heat.cells[1].text)
    assert.equal(100, heat.cells[1].value)
    assert.is_false(heat.cells[1].grey)
    assert.is_true(heat.cells[2].grey)
    assert.truthy(heat.cells[2].text:find("in spread", 1, true))
  end)

  it("is the winner and the runner-up, contested where ranges touch", function()
    local heat = figure_data.winners(found({
      { at = { ws = 1, skew = 0 }, goodput = { a = { 10, 11 }, b = { 5, 6 }, c = { 1, 2 } } },
      { at = { ws = 1, skew = 1 }, goodput = { a = { 10, 11 }, b = { 11, 12 }, c = { 1, 2 } } },
    }), "goodput", grid)
    assert.equal("a", heat.cells[1].name)
    assert.truthy(heat.cells[1].text:find("then b", 1, true))
    assert.is_false(heat.cells[1].grey)
    assert.equal("b", heat.cells[2].name)
    assert.is_true(heat.cells[2].grey)
    assert.truthy(heat.cells[2].text:find("contested by a", 1, true))
  end)

  it("takes less for more where less is better", function()
    local heat = figure_data.winners(found({
      { at = { ws = 1, skew = 0 }, goodput = { a = { 9, 9 }, b = { 1, 1 } },
        ttft = { a = 200, b = 100 } },
    }), "ttft_p50_ms", grid)
    assert.equal("b", heat.cells[1].name)
    assert.is_false(heat.cells[1].grey)
  end)
end)
