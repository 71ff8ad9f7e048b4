-- experiments/recovery.lua: what losing a replica costs, by kill and by drain.
local json = require("kvroute.json")
local lab = require("sim.laboratory")

describe("experiments/recovery.lua", function()
  it("loses what a killed replica had begun, and nothing by a drain", function()
    local folder = lab.new_folder()
    finally(function() lab.remove_folder(folder) end)
    local code, out, err = lab.run(folder, "experiments/recovery.lua", "--seeds", "4", "--out",
      folder .. "/cells", "--results", folder)
    assert.equal(0, code, err)
    for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
    local lost = { kill = 0, drain = 0 }
    for _, pool in ipairs(json.decode(lab.read(folder .. "/recovery.json")).pools) do
      for _, each in ipairs(pool.repetitions) do
        local seen = each.result.collected.recovery
        -- Unbounded affinity may have piled tens of requests onto the victim.
        if pool.policy ~= "prefix_affinity /off" then
          lost[pool.at.fault] = lost[pool.at.fault] + seen.lost
        end
        -- Nothing goes to a replica that is away, once that is known.
        for i = 23, 32 do assert.equal(0, seen.by[3][i]) end
        assert.is_true(seen.by[3][15] > 0 and seen.by[3][45] > 0)
      end
    end
    assert.equal(0, lost.drain)
    assert.is_true(lost.kill > 0)
  end)
end)
