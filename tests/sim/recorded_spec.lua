-- Cells as they were kept: compared, and judged anew from their rows.
local json = require("kvroute.json")
local lab = require("sim.laboratory")

local EXPERIMENT = [[
local lab = require("kvroute")
return lab.experiment {
  name = "small", axes = { { "skew", 0, 1.4 } },
  fleet = lab.fleet.simulated {
    profile = "rtx3090-8b-awq", replicas = 5, network_ms = 1, decision_ms = 2,
  },
  router = lab.router.study,
  workload = function(at) return lab.workload.kvroute { users = 32, skew = at.skew } end,
  policies = { "session_affinity", "prefix_affinity" },
  measure = { seconds = 80, warmup_s = 20 }, slo = { ttft_ms = 990, itl_ms = 24 }, seeds = 2,
}
]]

local function command(folder, ...)
  local words = { lab.binary }
  for _, word in ipairs({ ... }) do words[#words + 1] = "'" .. word .. "'" end
  local out, err = folder .. "/out", folder .. "/err"
  local status = os.execute(("%s >%s 2>%s"):format(table.concat(words, " "), out, err))
  return math.floor(status / 256), lab.read(out), lab.read(err)
end

describe("recorded cells", function()
  local folder, cells
  setup(function()
    folder = lab.new_folder()
    cells = folder .. "/cells"
    lab.write(folder .. "/small.lua", EXPERIMENT)
    assert.equal(0, (lab.run(folder, folder .. "/small.lua", "--rows", "--out", cells)))
  end)
  teardown(function() lab.remove_folder(folder) end)

  local function records()
    local out = {}
    for path, text in pairs(lab.files(cells)) do
      if path:find("^%x%x/%x+%.json$") then out[#out + 1] = { path = path, text = text } end
    end
    table.sort(out, function(a, b) return a.path < b.path end)
    return out
  end

  it("are compared: a table, JSON, CSV, and always the same bytes", function()
    local code, out, err = command(folder, "compare", cells)
    assert.equal(0, code, err)
    assert.truthy(out:find("skew 0\n", 1, true))
    assert.truthy(out:find("contamination: virtual time", 1, true))
    assert.equal(out, select(2, command(folder, "compare", cells)))
    local text = select(2, command(folder, "compare", cells, "--json"))
    local data = json.decode(text)
    assert.equal(4, #data.pools)
    assert.equal("session_affinity", data.baseline)
    assert.is_true(data.pools[4].against.separated)
    local csv = select(2, command(folder, "compare", cells, "--csv"))
    assert.equal(5, select(2, csv:gsub("\n", "")))
  end)

  it("are refused with exit 1, and wrong words with exit 2", function()
    local other = folder .. "/other"
    lab.write(folder .. "/small2.lua", (EXPERIMENT:gsub("990", "660")))
    assert.equal(0, (lab.run(folder, folder .. "/small2.lua", "--out", other)))
    local code, out, err = command(folder, "compare", cells, other)
    assert.equal(1, code)
    assert.equal("", out)
    assert.truthy(err:find("refused: more than one SLO: slo.ttft_ms is", 1, true), err)
    local _ -- luacheck: ignore
    code, _, err = command(folder, "compare", "--colour", "red")
    assert.equal(2, code)
    assert.truthy(err:find("see --help", 1, true))
    code, _, err = command(folder, "compare", folder .. "/small.lua")
    assert.equal(1, code)
    assert.truthy(err:find("is no cell", 1, true))
  end)

  it("give their figures again from their rows", function()
    local code, out, err = command(folder, "rescore", cells)
    assert.equal(0, code, err)
    assert.equal("8 cells: 0 change, 0 have no rows, 0 are not reproduced by their rows\n", out)
  end)

  it("give what was recorded of a number of requests, too", function()
    local counted = folder .. "/counted"
    lab.write(folder .. "/small3.lua", (EXPERIMENT:gsub("{ seconds = 80, warmup_s = 20 }",
      "{ requests = 600, warmup_requests = 100 }")))
    lab.run(folder, folder .. "/small3.lua", "--rows", "--seeds", "1", "--out", counted)
    local code, out, err = command(folder, "rescore", counted)
    assert.equal(0, code, out .. err)
    assert.equal("4 cells: 0 change, 0 have no rows, 0 are not reproduced by their rows\n", out)
  end)

  it("are judged anew, and only the verdict is written", function()
    local before = records()
    for _, each in ipairs(before) do
      local spoilt = json.decode(each.text)
      spoilt.result.evidence.flags = json.list({ { name = "fleet slowed", text = "old rules" } })
      spoilt.result.backlog = 0.9
      lab.write(cells .. "/" .. each.path, json.encode(spoilt) .. "\n")
    end
    local code, out = command(folder, "rescore", cells)
    assert.equal(0, code)
    assert.truthy(out:find("fleet slowed -> clean", 1, true), out)
    assert.truthy(out:find("8 cells: 8 change", 1, true), out)
    assert.are_not.equal(before[1].text, records()[1].text) -- nothing is written unasked
    assert.equal(0, (command(folder, "rescore", "-w", cells)))
    for i, each in ipairs(records()) do
      local was, is = json.decode(before[i].text), json.decode(each.text)
      assert.near(was.result.backlog, is.result.backlog, 0.006)
      assert.near(was.result.evidence.drift.drift, is.result.evidence.drift.drift, 0.01)
      was.result.backlog, is.result.backlog = nil, nil
      was.result.evidence, is.result.evidence = nil, nil
      assert.equal(json.encode(was), json.encode(is))
    end
  end)

  it("are not written where rows do not give what was recorded", function()
    local before = records()
    local path = cells .. "/" .. before[3].path:gsub("%.json$", ".rows.jsonl")
    local rows = lab.read(path)
    finally(function() lab.write(path, rows) end)
    lab.write(path, (rows:gsub('"outcome":"success"', '"outcome":"dropped"')))
    local code, out = command(folder, "rescore", "-w", cells)
    assert.equal(1, code)
    assert.truthy(out:find("not reproduced: [%w_]+, seed %d .-success: %d+ in the rows, %d+"),
      out)
    assert.truthy(out:find("nothing was written", 1, true))
    for i, each in ipairs(records()) do assert.equal(before[i].text, each.text) end
  end)

  it("are told by file and line where a row is broken", function()
    local path = cells .. "/" .. records()[1].path:gsub("%.json$", ".rows.jsonl")
    local rows = lab.read(path)
    finally(function() lab.write(path, rows) end)
    for _, line in ipairs({
      '{"started_ms":1,"seq', '{"a":1}', '{"started_ms":"x","outcome":"success"}',
    }) do
      lab.write(path, rows .. line)
      local code, out, err = command(folder, "rescore", cells)
      assert.equal(1, code, err)
      assert.truthy(out:find("rows%.jsonl:%d+ is no row"), out)
      -- And the others were looked at.
      assert.truthy(out:find(", 1 are not reproduced", 1, true), out)
    end
  end)

  it("that have no rows are left alone", function()
    for path in pairs(lab.files(cells)) do
      if path:find("%.rows%.jsonl$") then os.remove(cells .. "/" .. path) end
    end
    local code, out = command(folder, "rescore", cells)
    assert.equal(0, code)
    assert.equal("8 cells: 0 change, 8 have no rows, 0 are not reproduced by their rows\n", out)
  end)
end)
