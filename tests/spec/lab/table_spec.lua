local tables = require("kvroute.table")

local function lines(text)
  local out = {}
  for line in text:gmatch("(.-)\n") do out[#out + 1] = line end
  return out
end

describe("table", function()
  it("sets names left and numbers right", function()
    local text = tables.text({
      title = "skew 0",
      head = { "policy", "goodput\n/s", "TTFT" },
      rows = { { "round_robin", 3.2, "742 ms" }, { "mine", 15.25, false } },
    })
    assert.same({
      "skew 0",
      "",
      "             goodput",
      "policy            /s    TTFT",
      "-----------  -------  ------",
      "round_robin      3.2  742 ms",
      "mine           15.25       -",
    }, lines(text))
  end)

  it("counts characters, not bytes", function()
    local rows = { { "Köln", 1 }, { "Bonn", 2 } }
    local out = lines(tables.text({ head = { "ort", "x" }, rows = rows }))
    assert.equal("Köln  1", out[3])
    assert.equal("Bonn  2", out[4])
  end)

  it("breaks wide tables into pages that repeat the names of rows", function()
    local head, row = { "policy" }, { "prefix_affinity" }
    for i = 1, 30 do
      head[i + 1], row[i + 1] = "column" .. i, i * 1000
    end
    local text = tables.text({ head = head, rows = { row } })
    local seen = 0
    for _, line in ipairs(lines(text)) do
      assert.is_true(#line <= 100, line)
      if line:find("^prefix_affinity") then seen = seen + 1 end
    end
    assert.is_true(seen > 1)
    for i = 1, 30 do
      assert.is_truthy(text:find("column" .. i, 1, true))
      assert.is_truthy(text:find(" " .. i * 1000, 1, true))
    end
  end)

  it("has a page even for a column that is wider than it", function()
    local text = tables.text({ head = { "a", ("b"):rep(120) }, rows = { { "x", "y" } } })
    assert.is_truthy(text:find("y", 1, true))
  end)

  it("ends lines where the text ends", function()
    for _, line in ipairs(lines(tables.text({
      head = { "name", "note" }, rows = { { "a", "long note" }, { "b", "s" } },
    }))) do
      assert.is_nil(line:find(" $"), line)
    end
  end)

  it("writes CSV that keeps commas, quotes and what is not known", function()
    assert.equal('policy,note,x\n"a,b","say ""x""",1.5\nc,,\n',
      tables.csv({ "policy", "note", "x" },
        { { "a,b", 'say "x"', 1.5 }, { "c", false, 0 / 0 } }))
  end)
end)
