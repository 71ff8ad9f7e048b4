-- Connections to a replica, kept for the next request: used, let go of, and found dead.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request
local take_any = Replica.take_any

describe("the pool of a replica", function()
  after_each(Fleet.finish)

  it("reuses a connection for one request after the other", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    for i = 1, 6 do
      fleet:chat("Hello")
      assert.equal(i, fleet.replicas[1]:take().nth)
    end
    local connections = fleet:replica_state(fleet.replicas[1].name).connections
    assert.equal(1, connections.opened)
    assert.equal(5, connections.reused)
  end)

  it("has one connection for each request in flight", function()
    local fleet = Fleet.start()
    local clients, exchanges, distinct = {}, {}, {}
    for i = 1, 8 do
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Hello " .. i))
      exchanges[i] = fleet.replicas[1]:take()
      distinct[exchanges[i].connection] = true
    end
    local count = 0
    for _ in pairs(distinct) do count = count + 1 end
    assert.equal(8, count)
    assert.equal(8, fleet:replica_state(fleet.replicas[1].name).in_flight)
    for i = 1, 8 do
      exchanges[i]:reply()
      assert.equal(200, clients[i]:finish().status)
    end
    assert.equal(8, fleet:replica_state(fleet.replicas[1].name).connections.idle)
  end)

  it("drops a connection whose replica closes it, or says more than it was asked", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    fleet.replicas[1]:take():reply({ headers = { "Connection: close" } })
    client:finish()
    client:begin(chat_request("Hello"))
    local second = fleet.replicas[1]:take()
    assert.equal(1, second.nth)
    second:send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n")
    assert.equal("{}", client:finish():body())
    client:begin(chat_request("Hello"))
    local third = fleet.replicas[1]:take()
    assert.equal(1, third.nth)
    third:reply()
    assert.equal(200, client:finish().status)
    -- Bytes on an idle connection answer nothing: it goes.
    third:send("HTTP/1.1 500 Oops\r\nContent-Length: 0\r\n\r\n")
    third:wait_gone(1)
    client:begin(chat_request("Hello"))
    local fourth = fleet.replicas[1]:take()
    assert.equal(1, fourth.nth)
    fourth:reply()
    assert.equal(200, client:finish().status)
  end)
end)

-- A client that was answered by one of two replicas and has sent its request again.
-- Returns the fleet, the client, and the first request as the replica had it.
local function reused_by_second()
  local fleet = Fleet.alike(2, { policy = "session_affinity" })
  local client = fleet:connect()
  local request = chat_request("Hello", nil, { "x-session-id: s" })
  client:begin(request)
  local first = take_any(fleet.replicas)
  first:reply()
  client:finish()
  client:begin(request)
  return fleet, client, first
end

describe("a pooled connection", function()
  after_each(Fleet.finish)

  -- A replica whose idle connection dies as the next request reaches it.
  for _, how in ipairs({ "close", "reset" }) do
    it(("that is stale (%s): the request is sent again, and nobody notices"):format(how), function()
      local fleet, client, first = reused_by_second()
      local second = first.replica:take()
      assert.equal(first.connection, second.connection)
      second[how](second)
      local third = first.replica:take()
      assert.not_equal(second.connection, third.connection)
      check.same_bytes(second.body, third.body)
      third:reply()
      assert.equal(200, client:finish().status)
      local row = fleet:row(2)
      assert.equal("success", row.outcome)
      assert.is_nil(row.moves)
      assert.equal(first.replica.name, row.replica)
      assert.equal(1, fleet:admin("/admin/status").exchanges.stale_resends)
      assert.equal("up", fleet:replica_state(first.replica.name).operational)
    end)
  end

  it("that is stale is excused once; then the request moves", function()
    local fleet, client, first = reused_by_second()
    first.replica:take():reset()
    first.replica:take():reset()
    local last = take_any(fleet.replicas)
    assert.not_equal(first.replica, last.replica)
    last:reply()
    assert.equal(200, client:finish().status)
    assert.same({ first.replica.name }, fleet:row(2).failed_on)
  end)

  it("that said a byte of its answer is not stale: the request moves", function()
    local fleet, client, first = reused_by_second()
    local second = first.replica:take()
    second:send("HTTP/1.1 2")
    loop.after(0.02, function() second:reset() end)
    local third = take_any(fleet.replicas)
    assert.not_equal(first.replica, third.replica)
    third:reply()
    assert.equal(200, client:finish().status)
    assert.equal(0, fleet:admin("/admin/status").exchanges.stale_resends)
  end)

  it("that its replica closes while idle is noticed at once", function()
    local fleet = Fleet.alike(1, nil, Replica.answers())
    fleet:chat("Hello")
    local name = fleet.replicas[1].name
    assert.equal(1, fleet:replica_state(name).connections.idle)
    fleet.replicas[1]:take():close()
    loop.wait(function() return fleet:replica_state(name).connections.idle == 0 end, 1)
    assert.equal(200, fleet:chat("Hello").status)
    assert.equal(0, fleet:replica_state(name).connections.stale)
  end)

  it("is let go before the engine would close it", function()
    local fleet = Fleet.alike(1, { timeouts = { pool_idle_ms = 200 } }, Replica.answers())
    fleet:chat("Hello")
    local exchange = fleet.replicas[1]:take()
    local took = exchange:wait_gone(1, loop.now())
    assert.is_true(took > 0.1 and took < 0.5, "took " .. took)
  end)
end)
