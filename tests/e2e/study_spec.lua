-- An experiment of the study as a spot check: the same file, its cells in real time on emulated
-- engines behind real sockets.
local cjson = require("cjson")
local lab = require("sim.laboratory")

local POLICIES = 7 -- of frozen.lua

-- Cells that a run has left.
local function cells_of(folder)
  local out = {}
  for name, text in pairs(lab.files(folder)) do
    if name:find("%x%.json$") then out[#out + 1] = cjson.decode(text) end
  end
  return out
end

describe("an experiment of the study with --fleet emulated", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("runs live, a repetition a policy, and says so", function()
    local code, out, err = lab.run(folder, "experiments/frozen.lua", "--fleet", "emulated",
      "--set", "seconds=12", "--out", folder .. "/cells", "--results", folder .. "/results")
    assert.equal(0, code, err)
    assert.truthy(out:find("frozen-emulated: what does each policy get", 1, true), out)
    assert.truthy(out:find("\nlive: emulated engines behind real sockets, 20 simulated seconds a "
      .. "second\n", 1, true), out)
    assert.equal(out, lab.read(folder .. "/results/frozen-emulated.txt"))

    local cells = cells_of(folder .. "/cells")
    assert.equal(POLICIES, #cells)
    for _, each in ipairs(cells) do
      local result = each.result
      assert.equal("emulated", each.cell.fleet.kind)
      assert.equal(2, each.cell.measure.warmup_s) -- of 50 in 300
      assert.is_true(result.success > 0)
      -- Evidence and figures that only a live cell has.
      assert.equal("number", type(result.evidence.late_p99_ms))
      assert.is_true(result.evidence.engines_late_p99_ms > 0)
      assert.equal(0, result.evidence.ejections)
      assert.equal("not looked for", result.evidence.contamination.state)
      assert.is_true(result.decided.p50 > 0)
      assert.is_true(result.overhead.p50 >= result.decided.p50)
      assert.is_true(result.overhead.p99 < 1000)
    end
  end)

  it("is refused where the experiment needs what only the simulator has", function()
    local code, _, err = lab.run(folder, "experiments/throttled_card.lua", "--fleet", "emulated",
      "--list")
    assert.equal(2, code)
    assert.truthy(err:find("fleet.emulated has no option slowdowns", 1, true), err)
    code, _, err = lab.run(folder, "experiments/frozen.lua", "--fleet", "emulate", "--list")
    assert.equal(2, code)
    assert.truthy(err:find("--fleet is simulated or emulated, not emulate", 1, true), err)
  end)

  it("has its ring in the simulator too, where the port is given", function()
    local code, _, err = lab.run(folder, "experiments/frozen.lua", "--seeds", "1", "--set",
      "seconds=3", "--set", "port=18150", "--out", folder .. "/cells")
    assert.equal(0, code, err)
    assert.equal("127.0.0.1:18150 127.0.0.1:18151 127.0.0.1:18152 127.0.0.1:18153 "
      .. "127.0.0.1:18154", cells_of(folder .. "/cells")[1].cell.fleet.authorities)
  end)
end)
