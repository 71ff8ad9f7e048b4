-- What probes say of a replica, and what requests get when no replica can take them.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request
local take_any, count_all = Replica.take_any, Replica.count_all

describe("health", function()
  after_each(Fleet.finish)

  it("ejects after two failed probes and readmits after two passes", function()
    local fleet = Fleet.alike(2, { health = { interval_ms = 100, ramp_ms = 300 } },
      Replica.answers())
    local sick = fleet.replicas[1]
    local asked = sick.asked["/health"]
    sick.healthy = false
    fleet:wait_down(sick.name, 2)
    assert.is_true(sick.asked["/health"] - asked <= 3)
    for _ = 1, 4 do assert.equal(200, fleet:chat("Hello").status) end
    assert.equal(0, sick:count())
    sick.healthy = true
    asked = sick.asked["/health"]
    loop.wait(function() return not fleet:is_down(sick.name) end, 2)
    assert.is_true(sick.asked["/health"] - asked >= 2)
    assert.equal("ramping", fleet:replica_state(sick.name).operational)
    fleet:wait_ready()
    for _ = 1, 2 do assert.equal(200, fleet:chat("Hello").status) end
    assert.equal(1, sick:count())
  end)

  it("never touches the streams or the counts of a replica", function()
    local fleet = Fleet.alike(1)
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    client:wait_body(#exchange:event("one"))
    fleet.replicas[1].healthy = false
    fleet:wait_down(fleet.replicas[1].name, 2)
    assert.equal(1, fleet:replica_state(fleet.replicas[1].name).in_flight)
    exchange:event("two")
    exchange:finish()
    assert.equal(200, client:finish().status)
    assert.equal("success", fleet:row(1).outcome)
    assert.equal(0, fleet:replica_state(fleet.replicas[1].name).in_flight)
  end)
end)

describe("without a replica", function()
  after_each(Fleet.finish)

  local function assert_none(fleet, code)
    local answer = fleet:chat("Hello")
    check.api_error(answer, 503, code)
    local seconds = tonumber(answer:header("retry-after"))
    assert.is_true(seconds >= 1)
    local rows = fleet:rows(1)
    local row = rows[#rows]
    assert.equal("dropped", row.outcome)
    assert.equal(503, row.status)
    assert.equal(code, row.error)
    assert.is_nil(row.replica)
    return answer
  end

  it("in the configuration: 503", function()
    local fleet = Fleet.alike(0)
    assert_none(fleet, "no_replicas")
    local answer = fleet:request({ path = "/tokenize", body = "{}" })
    check.api_error(answer, 503, "no_replicas")
  end)

  it("that is up: 503", function()
    local fleet = Fleet.alike(2)
    for _, each in ipairs(fleet.replicas) do each.healthy = false end
    for _, each in ipairs(fleet.replicas) do fleet:wait_down(each.name) end
    assert_none(fleet, "no_replicas")
    assert.equal(0, count_all(fleet.replicas))
  end)

  it("that is not draining: 503", function()
    local fleet = Fleet.alike(1)
    fleet:admin("/admin/replicas/drain", { replica = fleet.replicas[1].name })
    assert_none(fleet, "draining")
    fleet:admin("/admin/replicas/restore", { replica = fleet.replicas[1].name })
    fleet.replicas[1].script = Replica.answers()
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("that has room: 503", function()
    local fleet = Fleet.alike({ { settings = { capacity = 1 } } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = take_any(fleet.replicas)
    assert_none(fleet, "at_capacity")
    exchange:reply()
    assert.equal(200, client:finish().status)
  end)
end)
