-- Profiles by name and by file are one thing, in the laboratory as for `kvroute replica`.
local ffi = require("kvroute.ffi")
local fleet = require("kvroute.fleet")
local lfs = require("lfs")
local store = require("kvroute.store")

local FOLDER = "core/engine/profiles/"

local function values(profile)
  local made = fleet.simulated({ profile = profile })
  local got = assert(fleet.with_profile(made)).profile
  local out = ffi.table(got, "kvr_profile")
  out.name, out.form = ffi.string(got.name), tonumber(got.form)
  return out
end

describe("a fleet's profile", function()
  it("is the same by its file as by its name, in all that it says and leaves out", function()
    local roofline = false
    for file in lfs.dir(FOLDER) do
      local name = file:match("^(.*)%.lua$")
      if name then
        assert.same(values(name), values(FOLDER .. file))
        roofline = roofline or store.read_file(FOLDER .. file):find("roofline", 1, true) ~= nil
      end
    end
    assert.is_true(roofline, "no profile tries the second form")
  end)

  it("says of a file what is wrong where", function()
    local path = os.tmpname()
    finally(function() os.remove(path) end)
    local text = store.read_file(FOLDER .. "simple.lua")
    for wrong, why in pairs({
      ["step_floor_ms = -1"] = "step_floor_ms: must be a number between 0 and",
      ["form = 'square'"] = "form: must be",
      ["speed = 1"] = "speed: no such setting",
    }) do
      store.write_file(path, text .. wrong .. "\n")
      local ok, failure = pcall(fleet.simulated, { profile = path })
      assert.is_false(ok)
      assert.truthy(tostring(failure):find("fleet: " .. path .. ":", 1, true), failure)
      assert.truthy(tostring(failure):find(why, 1, true), failure)
    end
    local ok, failure = pcall(fleet.simulated, { profile = "./nowhere.lua" })
    assert.is_false(ok)
    assert.truthy(tostring(failure):find("cannot read ./nowhere.lua", 1, true), failure)
  end)

  it("travels with the cell as its text", function()
    local made = fleet.simulated({ profile = FOLDER .. "simple.lua" })
    assert.equal(store.read_file(FOLDER .. "simple.lua"), made.profile_text)
    assert.is_nil(fleet.simulated({ profile = "simple" }).profile_text)
  end)
end)
