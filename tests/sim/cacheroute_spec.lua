-- experiments/cacheroute_table1.lua on three rungs of its ladder and with one seed.
local lab = require("sim.laboratory")

describe("experiments/cacheroute_table1.lua", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("has the plan carry the most, and the ring the least", function()
    local code, out, err = lab.run(folder, "experiments/cacheroute_table1.lua", "--seeds", "1",
      "--out", folder .. "/cells", "--set", "rates=60,100,160")
    assert.equal(0, code, err)
    local found = {}
    for line in out:gmatch("[^\n]+") do
      assert.is_true(#line <= 100, line)
      local policy, hit, capacity = line:match("^([%w_]+) +([%d.]+) %% +<?(%d+)")
      if policy then found[policy] = { hit = tonumber(hit), capacity = tonumber(capacity) } end
    end
    assert.equal(160, found.cacheroute.capacity, out)
    assert.equal(60, found.bounded_session_affinity.capacity, out)
    assert.equal(60, found.p2c.capacity, out)
    assert.is_true(found.session_affinity.capacity <= 60, out)
    assert.is_true(found.cacheroute.hit > 90 and found.p2c.hit < 68, out)
  end)

  it("asks for p99 at one of its rates", function()
    local code, _, err = lab.run(folder, "experiments/cacheroute_table1.lua", "--seeds", "1",
      "--out", folder .. "/cells", "--set", "rates=60", "--set", "common=70")
    assert.equal(1, code)
    assert.truthy(err:find("--set common is not among the rates", 1, true), err)
  end)
end)
