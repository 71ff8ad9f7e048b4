local unistd = require("posix.unistd")
local pulse = require("kvroute.pulse")

describe("pulse", function()
  -- One that was heard of at 0 and is seen like this every 0.2 s from then on.
  local function silent(looks, state, cpu_s_a_look)
    local cpu_s = 7
    local seen = pulse.new(1, function() return state, cpu_s end)
    seen:heard(0)
    local silence
    for i = 1, looks do
      cpu_s = cpu_s + cpu_s_a_look
      silence = seen:silent(i * 0.2)
    end
    return silence
  end

  it("counts the time that a process uses, and that it sleeps", function()
    assert.near(10, silent(50, "R", 0.2), 1e-6)
    assert.near(10, silent(50, "S", 0), 1e-6)
  end)

  it("does not count what the machine lets it wait", function()
    assert.near(0.5, silent(50, "R", 0.01), 1e-6)
    assert.equal(0, silent(50, "D", 0))
    assert.equal(0, silent(50, "T", 0))
  end)

  it("does not count what it was not there to see", function()
    local seen = pulse.new(1, function() return "S", 0 end)
    seen:heard(0)
    assert.equal(1, seen:silent(3600))
    seen:heard(3601)
    assert.equal(0.5, seen:silent(3601.5))
  end)

  it("bears that the process is gone", function()
    local seen = pulse.new(1, function() return nil end)
    seen:heard(0)
    assert.equal(0, seen:silent(1))
  end)

  it("reads of a process what the kernel says", function()
    local state, cpu_s = pulse.read(unistd.getpid())
    assert.equal("R", state)
    repeat local _, later = pulse.read(unistd.getpid()) until later > cpu_s
    assert.is_nil(pulse.read(2 ^ 30))
  end)
end)
