-- The experiments of CacheRoute: that each has its results, and Table 1 on three rungs of its
-- ladder and with one seed.
local lfs = require("lfs")
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

describe("the experiments of CacheRoute", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("each have a header, cells and a committed table that says what it is", function()
    local count = 0
    for file in lfs.dir("experiments") do
      local name = file:match("^(cacheroute_.*)%.lua$")
      if name then
        count = count + 1
        local text = lab.read("experiments/" .. file)
        for _, head in ipairs({ "Question", "Method", "Seed", "Run", "Takes" }) do
          assert.truthy(text:find("\n?%-%- " .. head .. " "), name .. ": " .. head)
        end
        local code, out, err = lab.run(folder, "experiments/" .. file, "--list")
        assert.equal(0, code, err)
        assert.truthy(out:find("seed 2", 1, true), name)
        local shown = lab.read(("experiments/results/%s/%s.txt"):format(name, name))
        local says = name == "cacheroute_table6" and "the paper" or "Reconstructed workload"
        assert.truthy(shown:find(says, 1, true), name)
        for line in shown:gmatch("[^\n]+") do assert.is_true(#line <= 100, name .. ": " .. line) end
      end
    end
    assert.is_true(count >= 14, count)
  end)
end)
