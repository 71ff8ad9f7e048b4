-- The laboratory from where `cmake --install` put it: binary, policies and Lua library move
-- together and need the sources no more.
local lab = require("sim.laboratory")

describe("an installed kvroute", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("runs an experiment from anywhere, by its own library", function()
    local build = os.getenv("KVR_BUILD") or "build"
    local install = ("cmake --install '%s' --prefix '%s/prefix' >'%s/log' 2>&1"):format(build,
      folder, folder)
    assert.equal(0, os.execute(install), lab.read(folder .. "/log"))
    lab.write(folder .. "/hello.lua", lab.read("experiments/hello.lua"))
    -- Where this text comes from is told by a library that is another.
    local main = folder .. "/prefix/share/kvroute/lua/kvroute/report.lua"
    lab.write(main, (lab.read(main):gsub('%("scripts "', '("installed "'):gsub('"scripts "',
      '"installed "')))
    local command = ("cd '%s' && prefix/bin/kvroute run hello.lua --seeds 1 >out 2>err"):format(
      folder)
    assert.equal(0, os.execute(command), lab.read(folder .. "/err"))
    local out = lab.read(folder .. "/out")
    assert.is_truthy(out:find("prefix_affinity", 1, true), out)
    assert.is_truthy(out:find("\ninstalled round_robin", 1, true), out)
    assert.is_truthy(lab.files(folder .. "/.cells"))
  end)
end)
