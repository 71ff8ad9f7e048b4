local drift = require("kvroute.drift")

-- Four turns a visit, a turn a second, by `users` users that begin together or spread out.
local function visits(seconds, ttft, options)
  options = options or {}
  local d = drift.new()
  for user = 0, (options.users or 10) - 1 do
    for k = 0, seconds - 1 do
      local turn = (k + (options.together and 0 or user)) % 4 + 1
      local at = k * 1000 + user * 37
      d:see(at, turn, ttft(at / 1000, turn, user))
    end
  end
  return d
end

local closed, open = { open = false, turns = 4 }, { open = true, turns = 4 }

local function judged(d, cell, backlog)
  return d:finish({ open = cell.open, turns = cell.turns, backlog = backlog })
end

describe("the drift check", function()
  it("finds nothing in a cell that stands still, though later turns are slower", function()
    local verdict = judged(visits(200, function(_, turn) return 300 * turn end), closed)
    assert.equal(0, verdict.drift)
    assert.same({}, verdict.causes)
    assert.equal("turns", verdict.basis)
    assert.equal(4, verdict.turns_compared)
  end)

  it("sees a first half that was slower: the fleet was cold", function()
    local verdict = judged(visits(200, function(at) return at < 100 and 600 or 300 end), closed)
    assert.near(1, verdict.drift, 0.05)
    assert.same({ "cold opening" }, verdict.causes)
  end)

  it("sees a second half that was slower: it is two-sided", function()
    local verdict = judged(visits(200, function(at) return at < 100 and 300 or 600 end), closed)
    assert.near(-0.5, verdict.drift, 0.05)
    assert.same({ "fleet slowed" }, verdict.causes)
  end)

  it("leaves a quarter alone, and nothing more", function()
    local function at_ratio(ratio)
      return judged(visits(200, function(at) return at < 100 and 300 * ratio or 300 end), closed)
    end
    assert.same({}, at_ratio(1.24).causes)
    assert.same({ "cold opening" }, at_ratio(1.26).causes)
  end)

  -- Split on the end of the last answer, all arrivals of a cell with a long drain are in its first
  -- half, and it looks steady whatever happens.
  it("splits on arrivals, so that a drain of minutes does not blind it", function()
    local d = drift.new()
    for k = 0, 799 do -- 80 s of arrivals, whose answers take up to four minutes
      d:see(k * 100, k % 4 + 1, k < 400 and 1000 or 240000)
    end
    local verdict = judged(d, open, 0.1)
    assert.is_true(verdict.drift < -0.9)
    assert.same({ "fleet slowed" }, verdict.causes)
  end)

  -- All users in step: the first half has more of the short turns, the second of the long ones.
  it("compares like turns, so that another mix of turns is no drift", function()
    local function ttft(_, turn) return 300 * turn end
    local d = drift.new()
    for k = 0, 199 do
      for _ = 1, 10 do
        local long = k < 100 and k % 10 < 2 or k >= 100 and k % 10 < 8
        local turn = long and 4 or 1
        d:see(k * 1000, turn, ttft(nil, turn))
      end
    end
    assert.same({}, judged(d, closed).causes)
    -- Without turns the very same requests would be flagged.
    local pooled = d:finish({ open = false })
    assert.equal("pooled", pooled.basis)
    assert.same({ "fleet slowed" }, pooled.causes)
  end)

  it("weighs turns by their requests", function()
    local d = drift.new()
    for k = 0, 999 do
      d:see(k, 1, 100) -- 1,000 that stand still
      if k % 50 == 0 then d:see(k, 2, k < 500 and 400 or 100) end -- 20 that do not
    end
    local verdict = judged(d, { open = false, turns = 2 })
    assert.near(3 * 20 / 1020, verdict.drift, 1e-9)
    assert.same({}, verdict.causes)
  end)

  it("flags turns asked in one half only, whatever the times", function()
    local function seen(cell)
      local d = drift.new()
      for k = 0, 99 do d:see(k, 1, 100) end
      for k = 50, 99 do d:see(k, 2, 100) end
      return judged(d, cell)
    end
    local verdict = seen(closed)
    assert.equal(1, verdict.turns_confined)
    assert.same({ "partial visits" }, verdict.causes)
    assert.same({ "fractional visit periods" }, seen(open).causes)
  end)

  it("counts requests that failed as asked", function()
    local d = drift.new()
    for k = 0, 99 do
      d:see(k, 1, 100)
      d:see(k, 2, k < 50 and 100 or nil)
    end
    local verdict = judged(d, closed)
    assert.equal(0, verdict.turns_confined)
    assert.equal(1, verdict.turns_thin)
    assert.same({}, verdict.causes)
  end)

  it("leaves thin turns out, and says how many", function()
    local d = drift.new()
    for k = 0, 99 do d:see(k, 1, 100) end
    for k = 0, 3 do d:see(k * 30, 2, k < 2 and 900 or 100) end
    local verdict = judged(d, closed)
    assert.equal(1, verdict.turns_compared)
    assert.equal(1, verdict.turns_thin)
    assert.equal(0, verdict.drift)
  end)

  it("calls an overrun open loop past saturation, by its backlog", function()
    local function slower() return visits(200, function(at) return 100 + at * at end) end
    assert.same({ "past saturation" }, judged(slower(), open, 0.28).causes)
    assert.same({ "fleet slowed" }, judged(slower(), open, 0.16).causes)
    assert.same({ "fleet slowed" }, judged(slower(), closed, 0.28).causes)
  end)

  it("does not know what it cannot compare", function()
    local verdict = judged(drift.new(), closed)
    assert.is_nil(verdict.drift)
    assert.same({}, verdict.causes)
  end)

  it("keeps no more than so many requests, and still sees", function()
    local before = drift.SAMPLES
    drift.SAMPLES = 1024
    finally(function() drift.SAMPLES = before end)
    local d = drift.new()
    for k = 0, 99999 do d:see(k, k % 4 + 1, k < 50000 and 600 or 300) end
    assert.is_true(d.kept <= 1024)
    local verdict = judged(d, closed)
    assert.near(1, verdict.drift, 0.02)
    assert.equal(4, verdict.turns_compared)
  end)

  it("reads the turns of a conversation from the workload's name", function()
    assert.equal(4, drift.turns_of("sessions(n=307,skew=0,turns=4,user=1792)+closed(users=32)"))
    assert.is_nil(drift.turns_of("keys(n=128,template=4400)+rate(20,cv=1)"))
  end)
end)
