-- A replica that fails when the client has a part of its answer, or that answers with an error:
-- neither is run again.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request
local take_any, count_all = Replica.take_any, Replica.count_all

describe("a replica that fails after the first body byte", function()
  after_each(Fleet.finish)

  local event = 'data: {"choices":[{"index":0,"delta":{"content":"one"}}]}\n\n'
  local failures = {
    ["resets in a stream"] = function(exchange)
      exchange:stream()
      exchange:chunk(event)
      return event, function() exchange:reset() end
    end,
    ["closes between two chunks"] = function(exchange)
      exchange:stream()
      exchange:chunk(event)
      return event, function() exchange:close() end
    end,
    ["closes within a chunk and a character"] = function(exchange)
      exchange:stream()
      exchange:send("40\r\ndata: \xc3")
      return "data: \xc3", function() exchange:close() end
    end,
    ["closes before the promised length"] = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
      return "{", function() exchange:close() end
    end,
    ["resets an answer without a length"] = function(exchange)
      exchange:send("HTTP/1.0 200 OK\r\n\r\n{")
      return "{", function() exchange:reset() end
    end,
    ["breaks its framing"] = function(exchange)
      exchange:stream()
      exchange:chunk(event)
      return event, function() exchange:send("no size\r\n") end
    end,
  }

  for what, fail in pairs(failures) do
    it(what .. ": the client is cut, and nothing is run twice", function()
      local fleet = Fleet.alike(2)
      local client = fleet:connect()
      local answer = client:begin(chat_request("Hello", { stream = true }))
      local exchange = take_any(fleet.replicas)
      local body, finish = fail(exchange)
      client:wait_body(#body)
      finish()
      -- A reset: not even a body that ends with its connection looks whole.
      assert.equal("reset", client:wait_end(1))
      assert.is_false(answer.done)
      assert.equal(body, answer:body())
      loop.sleep(0.05)
      assert.equal(1, count_all(fleet.replicas))
      local row = fleet:row(1)
      assert.equal("dropped", row.outcome)
      assert.equal(what == "breaks its framing" and "malformed_answer" or "lost_mid_stream",
        row.error)
      assert.is_nil(row.moves)
      assert.equal(200, row.status)
      -- A loss in a stream ejects; the probes bring it back.
      assert.equal(1, fleet:replica_state(exchange.replica.name).ejections)
      fleet:wait_ready()
    end)
  end

  it("does not take other streams with it", function()
    local fleet = Fleet.alike(1, { health = { interval_ms = 60000 } })
    local clients, exchanges = {}, {}
    for i = 1, 3 do
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Hello", { stream = true }))
      exchanges[i] = take_any(fleet.replicas)
      exchanges[i]:stream()
      clients[i]:wait_body(#exchanges[i]:event("one"))
    end
    exchanges[2]:reset()
    clients[2]:wait_end(1)
    local state = fleet:replica_state(fleet.replicas[1].name)
    assert.equal("down", state.operational)
    assert.equal(2, state.in_flight)
    for _, i in ipairs({ 1, 3 }) do
      exchanges[i]:event("two")
      exchanges[i]:finish()
      assert.equal(200, clients[i]:finish().status)
    end
    assert.equal(0, fleet:replica_state(fleet.replicas[1].name).in_flight)
  end)

  it("falls silent for idle_ms: the client is cut", function()
    local fleet = Fleet.alike(1, { timeouts = { idle_ms = 200 } })
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    local bytes = 0
    for _ = 1, 4 do -- longer than idle_ms in all
      bytes = bytes + #exchange:event("word")
      client:wait_body(bytes)
      loop.sleep(0.1)
    end
    assert.equal("reset", client:wait_end(1))
    exchange:wait_gone(0.2)
    local row = fleet:row(1)
    assert.equal("dropped", row.outcome)
    assert.equal("idle_timeout", row.error)
    assert.equal("up", fleet:replica_state(exchange.replica.name).operational)
  end)

  it("exceeds total_ms: 504 before the first byte, a cut after it", function()
    local fleet = Fleet.alike(1, { timeouts = { total_ms = 300 } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = take_any(fleet.replicas)
    check.api_error(client:finish(), 504, "total_timeout")
    exchange:wait_gone(0.2)
    client:begin(chat_request("Hello"))
    exchange = take_any(fleet.replicas)
    exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{")
    assert.equal("reset", client:wait_end(1))
    exchange:wait_gone(0.2)
    local rows = fleet:rows(2)
    assert.equal("total_timeout", rows[1].error)
    assert.equal(504, rows[1].status)
    assert.equal("dropped", rows[2].outcome)
  end)
end)

describe("an error of a replica", function()
  after_each(Fleet.finish)

  it("that says it is full is not the last word while another is there", function()
    local fleet = Fleet.alike(3)
    local client = fleet:connect()
    local full = { status = 503, phrase = "Full", body = "full", headers = { "Retry-After: 3" } }
    client:begin(chat_request("Hello"))
    local first = take_any(fleet.replicas)
    first:reply(full)
    local second = take_any(fleet.replicas)
    assert.not_equal(first.replica, second.replica)
    second:reply(full)
    -- Once: now the client hears of it.
    local answer = client:finish()
    assert.equal("HTTP/1.1 503 Full", answer.start_line)
    assert.equal("3", answer:header("retry-after"))
    assert.equal("full", answer:body())
    assert.equal(2, count_all(fleet.replicas))
    local row = fleet:row(1)
    assert.equal("failed", row.outcome)
    assert.equal(1, row.moves)
    for _, each in ipairs(fleet.replicas) do
      assert.equal("up", fleet:replica_state(each.name).operational)
    end
  end)

  it("passes as it is, ejects nobody and is not retried", function()
    local fleet = Fleet.alike(2)
    local client = fleet:connect()
    for i, status in ipairs({ 400, 401, 404, 408, 409, 422, 429, 500, 501, 502, 529 }) do
      local body = ('{ "error":\n{"message":"as is %d","code":%d} }'):format(status, status)
      client:begin(chat_request("Hello " .. i))
      local exchange = take_any(fleet.replicas)
      exchange:reply({
        status = status, phrase = "As It Is", body = body,
        headers = { "Retry-After: 17", "x-should-retry: false" },
      })
      local answer = client:finish()
      assert.equal(("HTTP/1.1 %d As It Is"):format(status), answer.start_line)
      assert.equal("17", answer:header("retry-after"))
      assert.equal("false", answer:header("x-should-retry"))
      check.same_bytes(body, answer:body())
      local row = fleet:row(i)
      assert.equal("failed", row.outcome)
      assert.equal(status, row.status)
      assert.equal(status, row.upstream_status)
      assert.is_nil(row.moves)
      assert.equal(i, count_all(fleet.replicas))
    end
    for _, each in ipairs(fleet.replicas) do
      local state = fleet:replica_state(each.name)
      assert.equal("up", state.operational)
      assert.equal(0, state.ejections)
    end
  end)

  it("in the middle of a stream makes a row that says so", function()
    local fleet = Fleet.alike(1)
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    exchange:event("one")
    exchange:chunk('data: {"error":{"message":"engine died","code":500}}\n\n')
    exchange:finish()
    assert.equal(200, client:finish().status)
    local row = fleet:row(1)
    assert.equal("failed", row.outcome)
    assert.equal("error_in_answer", row.error)
    assert.equal(200, row.status)
  end)
end)
