-- kvroute run --watch: the experiment again whenever one of its files is saved.
local lab = require("sim.laboratory")
local time = require("posix.time")

local EXPERIMENT = [[
local lab = require("kvroute")
return lab.experiment {
  name = "small", fleet = lab.fleet.simulated { profile = "simple", replicas = 2 },
  workload = lab.workload.kvroute { users = 4 },
  policies = { lab.settings { policy = "x" }.policy },
  measure = { seconds = 20 }, slo = { ttft_ms = 990 }, seeds = 1,
}
]]

local POLICY = [[
return { api = 1, name = "mine", pick = function(_, view)
  if view.available > 0 then return kvr.nth_available(%d), "mine" end
end }
]]

local function wait_for(path, text, count)
  for _ = 1, 200 do
    if select(2, lab.read(path):gsub(text, "")) >= count then return true end
    time.nanosleep({ tv_sec = 0, tv_nsec = 1e8 })
  end
  return false
end

describe("kvroute run --watch", function()
  local folder, pid
  before_each(function() folder = lab.new_folder() end)
  after_each(function()
    os.execute("kill " .. pid .. " 2>/dev/null")
    lab.remove_folder(folder)
  end)

  it("runs again when the policy or the experiment is saved, and outlives a broken one", function()
    local err = lab.write(folder .. "/err", "")
    lab.write(folder .. "/small.lua", EXPERIMENT)
    lab.write(folder .. "/mine.lua", POLICY:format(0))
    os.execute(("%s run %s/small.lua --policy %s/mine.lua --watch >%s/out 2>%s & echo $! >%s/pid")
      :format(lab.binary, folder, folder, folder, err, folder))
    pid = lab.read(folder .. "/pid"):match("%d+")
    assert.is_true(wait_for(err, "watching", 1), lab.read(err))
    assert.truthy(lab.read(err):find("1 cells run, 0 failed", 1, true))
    lab.write(folder .. "/mine.lua", POLICY:format(1))
    assert.is_true(wait_for(err, "1 cells run, 0 failed", 2), lab.read(err))
    lab.write(folder .. "/mine.lua", "return {")
    assert.is_true(wait_for(err, "watching", 3), lab.read(err))
    assert.truthy(lab.read(err):find("mine.lua", 1, true))
    lab.write(folder .. "/mine.lua", POLICY:format(0))
    -- Its cell is kept from the first time.
    assert.is_true(wait_for(err, "0 cells run, 0 failed", 1), lab.read(err))
    lab.write(folder .. "/small.lua", (EXPERIMENT:gsub("seeds = 1", "seeds = 2")))
    assert.is_true(wait_for(err, "watching", 5), lab.read(err))
  end)
end)
