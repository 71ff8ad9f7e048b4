-- experiments/ablate.lua: one policy against another.
local lab = require("sim.laboratory")

describe("experiments/ablate.lua", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  local function ablate(...)
    local code, out, err = lab.run(folder, "experiments/ablate.lua", "--out", folder .. "/cells",
      "--seeds", "3", "--set", "working_sets=1", "--set", "skews=0", ...)
    return code, out, err
  end

  it("finds the better policy, and says by how much", function()
    local code, out, err = ablate("--policy", "prefix_affinity", "--against", "session_affinity")
    assert.equal(0, code, err)
    assert.truthy(out:find("A prefix_affinity, B session_affinity: goodput", 1, true), out)
    assert.truthy(out:find("A is better at 1 points, worse at 0, in spread at 0", 1, true), out)
    for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
  end)

  it("takes a file, and finds a copy no better than the original", function()
    local copy = lab.write(folder .. "/prefix_affinity.lua",
      "-- mine\n" .. lab.read("policies/prefix_affinity.lua"))
    local code, out, err = ablate("--policy", copy, "--against", "prefix_affinity")
    assert.equal(0, code, err)
    assert.truthy(out:find("A prefix_affinity (ours), B prefix_affinity:", 1, true), out)
    assert.truthy(out:find("A is better at 0 points, worse at 0, in spread at 1", 1, true), out)
    assert.truthy(out:find("change +0.0 %", 1, true), out)
  end)

  it("compares spill rules, and by other measures", function()
    local code, out, err = ablate("--policy", "prefix_affinity", "--set", "spill=off",
      "--against", "prefix_affinity", "--set", "metric=ttft_p99_ms")
    assert.equal(0, code, err)
    local title = "A prefix_affinity /off, B prefix_affinity: time to first token"
    assert.truthy(out:find(title, 1, true), out)
  end)
end)
