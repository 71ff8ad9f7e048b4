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
      local policy, hit, tight, knee = line:match(
        "^([%w-]+) +([%d.]+) %% %b[] +(%S+) %b[] +(%S+) %[")
      if policy then found[policy] = { hit = tonumber(hit), tight = tight, knee = knee } end
    end
    assert.equal("160+", found.CacheRoute.knee, out)
    assert.equal("60", found.CHWBL.knee, out)
    assert.equal("60", found["Flat-LB"].knee, out)
    assert.truthy(found.Sticky.knee == "<60" or found.Sticky.knee == "60", out)
    assert.is_true(found.CacheRoute.hit > 90 and found["Flat-LB"].hit < 68, out)
    assert.equal("160+", found.CacheRoute.tight, out)
  end)

  it("asks for p99 at one of its rates", function()
    local code, _, err = lab.run(folder, "experiments/cacheroute_table1.lua", "--seeds", "1",
      "--out", folder .. "/cells", "--set", "rates=60", "--set", "common=70")
    assert.equal(1, code)
    assert.truthy(err:find("--set common is not among the rates", 1, true), err)
  end)
end)
