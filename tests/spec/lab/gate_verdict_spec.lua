-- What a gate concludes, from made-up repetitions; and how it seeks the knee.
local gate = require("kvroute.gate")
local verdict = require("kvroute.gate_verdict")

local LIMITS = { ttft_ms = 3500, failed = 0.05, gain = 0.05, patience_ms = 30000 }

-- One repetition a p99; what is not said is the same for all.
local function measures(p99s, other)
  local out = {}
  for i, p99 in ipairs(p99s) do
    out[i] = { hit = 0.6, imbalance = 1.1, p99_ms = p99, failed = 0, fallbacks = 0 }
    for name, value in pairs(other or {}) do out[i][name] = value end
  end
  return out
end

local BASE = { below = { 1000, 1100, 1050, 980, 1020 }, near = { 3000, 3300, 3100, 3200, 2900 },
  above = { 5000, 5500, 6000, 5200, 4800 } }

-- The candidate's p99 as `factor` of the baseline's, by load.
local function judge(factors, other)
  local loads = {}
  for _, name in ipairs({ "below", "near", "above" }) do
    local p99s = {}
    for i, p99 in ipairs(BASE[name]) do p99s[i] = p99 * (factors[name] or 1) end
    loads[#loads + 1] = { name = name, rate = 10, against = measures(BASE[name]),
      candidate = measures(p99s, other) }
  end
  return verdict.judge(loads, LIMITS)
end

describe("the verdict of a gate", function()
  it("is enable where p99 is lower near the knee", function()
    local answer, why = judge({ below = 0.9, near = 0.7 })
    assert.equal("enable", answer)
    assert.equal("p99 is lower near the knee: -30 % (-30 to -30)", why)
  end)

  it("is enable where only the candidate holds the limit", function()
    local answer, why = judge({ above = 0.5 })
    assert.equal("enable", answer)
    assert.equal("it holds the limit at 10 requests a second, where the baseline fails", why)
  end)

  it("is keep on a tie, whatever the hit rate", function()
    local answer, why = judge({})
    assert.equal("keep", answer)
    assert.equal("p99 is a tie within spread near the knee: +0 % (+0 to +0)", why)
    answer, why = judge({}, { hit = 0.95 })
    assert.equal("keep", answer)
    assert.truthy(why:find("; +35.0 points of hit rate alone are no reason", 1, true), why)
  end)

  it("is keep where p99 is higher at either load, even if it is lower at the other", function()
    local answer, why = judge({ near = 1.2 })
    assert.equal("keep", answer)
    assert.truthy(why:find("p99 is higher near the knee: +20 %", 1, true), why)
    answer, why = judge({ below = 1.2, near = 0.5 })
    assert.equal("keep", answer)
    assert.truthy(why:find("p99 is higher below the knee: +20 %", 1, true), why)
  end)

  it("is keep where failures are higher, or the script failed", function()
    local answer, why = judge({ near = 0.5 }, { failed = 0.01 })
    assert.equal("keep", answer)
    assert.equal("failures are higher near the knee", why)
    answer, why = judge({ near = 0.5 }, { fallbacks = 1 })
    assert.equal("keep", answer)
    assert.equal("the candidate's script failed", why)
  end)

  it("is keep where p99 falls by less than is asked for", function()
    local answer, why = judge({ near = 0.97 })
    assert.equal("keep", answer)
    assert.truthy(why:find("p99 falls too little near the knee: -3 %", 1, true), why)
  end)

  it("is keep where a mean is lower and the pairs do not agree", function()
    local loads = { { name = "near", rate = 10, against = measures({ 3000, 3000, 3000 }),
      candidate = measures({ 1500, 3100, 2600 }) } }
    local answer, why = verdict.judge(loads, LIMITS)
    assert.equal("keep", answer)
    assert.truthy(why:find("tie within spread", 1, true), why)
  end)

  it("counts what never came as the longest wait", function()
    local loads = { { name = "near", rate = 10, against = measures({ 3000, 3100, 3200 }),
      candidate = measures({ math.huge, math.huge, math.huge }) } }
    local answer, why = verdict.judge(loads, LIMITS)
    assert.equal("keep", answer)
    assert.truthy(why:find("p99 is higher near the knee: +868 %", 1, true), why)
  end)
end)

describe("the knee", function()
  local function seek(start, limit)
    local asked = 0
    local low, high = gate.find_knee(start, function(rate)
      asked = asked + 1
      return rate <= limit
    end)
    return low, high, asked
  end

  it("is found to a tenth, from below and from above", function()
    for _, start in ipairs({ 10, 95, 100, 101, 900 }) do
      local low, high, asked = seek(start, 100)
      assert.is_true(low <= 100 and high > 100, ("%g: %g %g"):format(start, low, high))
      assert.is_true(high / low < 1.13, ("%g: %g %g"):format(start, low, high))
      assert.is_true(asked <= 10, tostring(asked))
    end
  end)

  it("is not there where nothing passes, or nothing fails", function()
    local low, high = seek(10, 0)
    assert.is_nil(low)
    assert.is_true(high > 0)
    low, high = seek(10, math.huge)
    assert.is_true(low > 0)
    assert.is_nil(high)
  end)
end)
