-- A client that goes away, or that has not read all of its answer.
local Backlog = require("e2e.support.backlog")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request
local take_any, count_all = Replica.take_any, Replica.count_all

describe("a client that goes away", function()
  after_each(Fleet.finish)

  local function before_the_head() end
  local function after_the_head(exchange)
    exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n")
    loop.sleep(0.02)
  end
  local function in_a_body(exchange, client)
    exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"half")
    client:wait_body(6)
  end
  local function in_a_stream(exchange, client)
    exchange:stream()
    client:wait_body(#exchange:event("one"))
  end

  for when, prepare in pairs({
    ["before the head"] = before_the_head, ["after the head"] = after_the_head,
    ["in a body"] = in_a_body, ["in a stream"] = in_a_stream,
  }) do
    for _, how in ipairs({ "close", "reset" }) do
      it(("by a %s %s lets go of the replica at once"):format(how, when), function()
        local fleet = Fleet.alike(2)
        local client = fleet:connect()
        client:begin(chat_request("Hello", { stream = when == "in a stream" }))
        local exchange = take_any(fleet.replicas)
        prepare(exchange, client)
        local left = loop.now()
        client[how](client)
        local took = exchange:wait_gone(1, left)
        assert.is_true(took < 0.1, "took " .. took)
        local row = fleet:row(1)
        assert.equal("cancelled", row.outcome)
        assert.equal("client_gone", row.error)
        assert.is_nil(row.moves)
        loop.sleep(0.05)
        assert.equal(1, count_all(fleet.replicas))
        assert.equal("up", fleet:replica_state(exchange.replica.name).operational)
      end)
    end
  end

  it("while its bytes wait for it to read lets go, too", function()
    local fleet = Fleet.alike(1)
    local client = fleet:connect(16384)
    client:begin(chat_request("Hello"))
    local exchange = take_any(fleet.replicas)
    exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 30000000\r\n\r\n" .. ("x"):rep(20000000))
    client:pause()
    loop.sleep(0.2)
    assert.is_nil(exchange:gone())
    local left = loop.now()
    client:reset()
    assert.is_true(exchange:wait_gone(1, left) < 0.1)
    assert.equal("cancelled", fleet:row(1).outcome)
  end)

  it("in the middle of its request leaves no trace at a replica", function()
    local fleet = Fleet.alike(1)
    local text = http.text(chat_request("Hello"))
    for _, how in ipairs({ "close", "reset" }) do
      for _, bytes in ipairs({ 10, #text - 1 }) do
        local client = fleet:connect()
        client:send(text:sub(1, bytes))
        loop.sleep(0.02)
        client[how](client)
      end
    end
    loop.wait(function() return fleet:admin("/admin/status").listeners[1].open == 0 end, 1)
    assert.equal(0, count_all(fleet.replicas))
  end)

  it("takes its pipelined requests with it", function()
    local fleet = Fleet.alike(1)
    local client = fleet:connect()
    client:send(http.text(chat_request("first")) .. http.text(chat_request("second")))
    local exchange = take_any(fleet.replicas)
    client:reset()
    exchange:wait_gone(1)
    loop.sleep(0.05)
    assert.equal(1, count_all(fleet.replicas))
    assert.equal("cancelled", fleet:row(1).outcome)
  end)
end)

describe("a client that reads slowly", function()
  after_each(Fleet.finish)

  it("gets all of an answer that ends its connection, however long it takes", function()
    local fleet = Fleet.alike(1)
    local client, length = Backlog.finished(fleet, { "Connection: close" })
    loop.sleep(3) -- longer than a client may linger that has all of it
    client:resume()
    assert.equal(length, client:finish(10).body_bytes)
    assert.equal("fin", client:wait_end(3))
  end)
end)
