-- LuaJIT of Debian 12 forwards loads from a table of constants that a compiled loop makes anew each
-- time round, and then counts wrongly. The binary's Lua goes without that optimisation.
local lab = require("sim.laboratory")

local COUNT = [[
local lab = require("kvroute")
local rows = {}
for i = 1, 1400 do
  local failed = i > 700 and i % 200 > 100
  rows[i] = { success = not failed, failed = failed, dropped = false }
end
local function count()
  local out = { success = 0, failed = 0, dropped = 0, good = 0 }
  for _, one in ipairs(rows) do
    for _, name in ipairs({ "success", "failed", "dropped" }) do
      if one[name] then out[name] = out[name] + 1 end
    end
    if one.success then out.good = out.good + 1 end
  end
  return out.failed
end
return lab.experiment {
  name = "count", fleet = lab.fleet.simulated { profile = "simple" }, policies = { "round_robin" },
  measure = { seconds = 1 }, slo = { ttft_ms = 1 },
  -- Not in the file itself: its lines are watched, which keeps it from being compiled.
  workload = function()
    for _ = 1, 10 do
      if count() ~= 396 then error("396 have failed, counted as " .. count()) end
    end
    return lab.workload.kvroute { users = 1 }
  end,
}
]]

describe("Lua in the binary", function()
  it("counts right in compiled loops", function()
    local folder = lab.new_folder()
    finally(function() lab.remove_folder(folder) end)
    local code, _, err = lab.run(folder, lab.write(folder .. "/count.lua", COUNT), "--list")
    assert.equal(0, code, err)
  end)
end)
