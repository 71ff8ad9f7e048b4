-- The characteristic time, against caches that can be counted.
local residency = require("kvroute.residency")

local function near(expected, got, tolerance)
  assert.is_true(math.abs(expected - got) <= tolerance * math.max(1, math.abs(expected)),
    ("%.6g instead of %.6g"):format(got, expected))
end

-- The share of requests that a real LRU list of so many things of size 1 answers.
local function simulated(weights, room, requests)
  math.randomseed(7)
  local total, hits = 0, 0
  for _, weight in ipairs(weights) do total = total + weight end
  local order = {} -- things by last use, the latest at the end
  for n = 1, requests do
    local draw, thing = math.random() * total, 0
    repeat
      thing = thing + 1
      draw = draw - weights[thing]
    until draw < 0
    for i = #order, 1, -1 do
      if order[i] == thing then
        hits = hits + (n > requests / 2 and 1 or 0)
        table.remove(order, i)
        break
      end
    end
    order[#order + 1] = thing
    if #order > room then table.remove(order, 1) end
  end
  return hits / (requests / 2)
end

describe("residency", function()
  it("is that of an LRU list", function()
    local weights, things = {}, {}
    for i = 1, 60 do
      weights[i] = 1 / i
      things[i] = { rate = weights[i], size = 1 }
    end
    local total, hit = 0, 0
    local time = residency.time(20, things, 0)
    for _, weight in ipairs(weights) do
      total, hit = total + weight, hit + weight * residency.lru(weight, time)
    end
    near(simulated(weights, 20, 40000), hit / total, 0.01)
  end)

  it("has all where there is room, and half of equal things where there is half", function()
    assert.equal(1e9, residency.time(10, { { rate = 1, size = 1, count = 10 } }, 0))
    local time = residency.time(5, { { rate = 1, size = 1, count = 10 } }, 0)
    near(math.log(2), time, 1e-9)
    near(0.5, residency.lru(1, time), 1e-9)
    time = residency.time(5, { { rate = 1, size = 1, count = 10 } }, 0, nil, residency.random)
    near(0.5, residency.random(1, time), 1e-9)
  end)

  it("is shortened by what nobody asks for again, and by age", function()
    near(2, residency.time(10, {}, 5), 1e-9)
    assert.equal(1.5, residency.time(10, {}, 5, 1.5))
  end)
end)
