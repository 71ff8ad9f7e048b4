-- experiments/hysteresis.lua with two intervals, one rate and one seed.
local lab = require("sim.laboratory")

describe("experiments/hysteresis.lua", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  -- Numbers of the table by plan and column; ranges are of one seed, and left out.
  local function table_of(out)
    local found = {}
    for line in out:gmatch("[^\n]+") do
      local plan, rest = line:match("^(%l[%l, ]-)  +([-%d].*)$")
      if plan then
        found[plan] = found[plan] or {}
        for number in rest:gsub("%b()", ""):gmatch("%S+") do
          table.insert(found[plan], tonumber(number) or false)
        end
      end
    end
    return found
  end

  it("moves a twentieth of the keys, keeps the balance and hardly dips", function()
    local code, out, err = lab.run(folder, "experiments/hysteresis.lua", "--seeds", "1",
      "--out", folder .. "/cells", "--set", "rates=100", "--set", "intervals=2",
      "--set", "plans=scratch,keep")
    assert.equal(0, code, err)
    local found = table_of(out)
    local function has(plan, column, low, high)
      local value = found[plan] and found[plan][column]
      assert.is_true(value and value >= low and value <= high, out)
    end
    local MADE, MOVED, ABOVE, HIT, DIP = 1, 2, 3, 5, 6
    has("keep", MADE, 2, 2)
    has("keep", MOVED, 0.5, 5)
    has("keep", ABOVE, 0, 0.1) -- 0.03 over six intervals and three seeds
    has("keep", DIP, -1, 2)
    has("scratch", MADE, 2, 2)
    has("scratch", MOVED, 80, 100)
    has("scratch", DIP, 8, 30)
    assert.is_true(found.keep[HIT] > found.scratch[HIT] + 3, out)
  end)
end)
