-- A replica that fails while its request can still go elsewhere: until the first body byte of an
-- answer, and while not all of the request has been read.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")

local chat_request = Fleet.chat_request
local take_any, count_all = Replica.take_any, Replica.count_all

describe("a replica that fails before the first body byte", function()
  after_each(Fleet.finish)

  local head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
  local failures = {
    ["resets after the request"] = function(exchange) exchange:reset() end,
    ["closes without a word"] = function(exchange) exchange:close() end,
    ["closes within its head"] = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nContent-Le")
      exchange:close()
    end,
    ["resets after its head"] = function(exchange)
      exchange:send(head .. "Content-Length: 10\r\n\r\n")
      loop.after(0.03, function() exchange:reset() end)
    end,
    ["closes after the head of a stream"] = function(exchange)
      exchange:stream()
      loop.after(0.03, function() exchange:close() end)
    end,
    ["resets within its first chunk's size"] = function(exchange)
      exchange:stream()
      exchange:send("1f")
      loop.after(0.03, function() exchange:reset() end)
    end,
    ["resets after its first chunk's size"] = function(exchange)
      exchange:stream()
      loop.after(0.02, function() exchange:send("1f\r\n") end)
      loop.after(0.04, function() exchange:reset() end)
    end,
    ["answers nonsense"] = function(exchange) exchange:send("SSH-2.0-OpenSSH_9.2\r\n\r\n") end,
    ["answers with a broken head"] = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 5\r\n\r\nabc")
    end,
    ["answers with a bare line feed"] = function(exchange)
      exchange:send("HTTP/1.1 200 OK\nContent-Length: 3\n\nabc")
    end,
    ["begins with a chunk size that is none"] = function(exchange)
      exchange:stream()
      exchange:send("zz\r\ndata\r\n")
    end,
    ["switches protocols"] = function(exchange)
      exchange:send("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n")
    end,
    ["never ends its head"] = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nX-Long: " .. ("x"):rep(70000))
    end,
    ["says it goes on, and closes"] = function(exchange)
      exchange:send("HTTP/1.1 102 Processing\r\n\r\n")
      loop.after(0.02, function() exchange:close() end)
    end,
  }

  for what, fail in pairs(failures) do
    it(what .. ": another one answers, and the client sees nothing of it", function()
      local fleet = Fleet.alike(2)
      local client = fleet:connect()
      client:begin(chat_request("Hello", nil, { "X-Request-Id: moved" }))
      local first = take_any(fleet.replicas)
      fail(first)
      local second = take_any(fleet.replicas)
      assert.not_equal(first.replica, second.replica)
      check.same_bytes(first.body, second.body)
      assert.equal("moved", second.request:header("x-request-id"))
      assert.equal(second.replica.name, second.request:header("host"))
      second:reply()
      local answer = client:finish()
      assert.equal(200, answer.status)
      assert.equal(second.replica.name, answer:header("x-kvroute-replica"))
      local row = fleet:row(1)
      assert.equal("success", row.outcome)
      assert.equal(1, row.moves)
      assert.same({ first.replica.name }, row.failed_on)
      assert.equal(second.replica.name, row.replica)
      if first.connection.fd then first:wait_gone(1) end
      assert.equal(2, count_all(fleet.replicas))
      -- The connection is good for more.
      client:begin(chat_request("Again"))
      take_any(fleet.replicas):reply()
      assert.equal(200, client:finish().status)
    end)
  end

  it("refuses connections: another one answers, and it is down at once", function()
    local fleet = Fleet.alike(2, { health = { interval_ms = 60000 } }, Replica.answers())
    fleet.replicas[1]:refuse()
    fleet.replicas[1]:hang_up()
    for _ = 1, 4 do assert.equal(200, fleet:chat("Hello").status) end
    assert.equal(4, fleet.replicas[2]:count())
    local moved = 0
    for _, row in ipairs(fleet:rows(4)) do
      assert.equal("success", row.outcome)
      moved = moved + (row.moves or 0)
    end
    assert.equal(1, moved)
    assert.is_true(fleet:is_down(fleet.replicas[1].name))
    assert.equal(1, fleet:replica_state(fleet.replicas[1].name).ejections)
  end)

  it("lets no connection come about: another one answers after connect_ms", function()
    local fleet = Fleet.alike(2,
      { health = { interval_ms = 60000 }, timeouts = { connect_ms = 200 } }, Replica.answers())
    fleet.replicas[1]:clog()
    for _ = 1, 2 do assert.equal(200, fleet:chat("Hello").status) end
    local moved
    for _, row in ipairs(fleet:rows(2)) do moved = row.moves and row or moved end
    assert.same({ fleet.replicas[1].name }, moved.failed_on)
    assert.is_true(moved.overhead_ms >= 200 and moved.overhead_ms < 700)
  end)

  it("moves a request twice at most", function()
    local fleet = Fleet.alike(4)
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local failed, names = {}, {}
    for i = 1, 3 do
      local exchange = take_any(fleet.replicas)
      assert.is_nil(failed[exchange.replica])
      failed[exchange.replica], names[i] = true, exchange.replica.name
      exchange:reset()
    end
    local answer = client:finish()
    local err = check.api_error(answer, 502, "all_replicas_failed")
    assert.is_truthy(err.message:find("lost_before_first_byte", 1, true))
    assert.equal(3, count_all(fleet.replicas))
    local row = fleet:row(1)
    assert.equal(2, row.moves)
    assert.same(names, row.failed_on)
    assert.equal("dropped", row.outcome)
    assert.equal(502, row.status)
    -- Not the client's fault, and not the end of its connection.
    client:begin(chat_request("Hello"))
    take_any(fleet.replicas):reply()
    assert.equal(200, client:finish().status)
  end)

  it("moves a request not at all when told so", function()
    local fleet = Fleet.alike(2, { moves = 0 })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    take_any(fleet.replicas):reset()
    check.api_error(client:finish(), 502, "all_replicas_failed")
    assert.equal(1, count_all(fleet.replicas))
  end)

  it("is the only one: 502, and soon it is 503", function()
    local fleet = Fleet.alike(1, { health = { interval_ms = 60000 } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    take_any(fleet.replicas):reset()
    check.api_error(client:finish(), 502, "all_replicas_failed")
    local answer = client:request(chat_request("Hello"))
    check.api_error(answer, 503, "no_replicas")
    assert.is_truthy(tonumber(answer:header("retry-after")))
  end)

  it("fails a path that is not routed by policy: it moves, too", function()
    local fleet = Fleet.alike(2)
    local client = fleet:connect()
    client:begin({ path = "/tokenize", body = "{}" })
    take_any(fleet.replicas):reset()
    take_any(fleet.replicas):reply({ body = "moved" })
    assert.equal("moved", client:finish():body())
    assert.equal(1, fleet:row(1).moves)
  end)

  it("takes too long for first_byte_ms: another one answers, and it is not to blame", function()
    local fleet = Fleet.alike(2, { timeouts = { first_byte_ms = 200 } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local first = take_any(fleet.replicas)
    first:send("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
    local second = take_any(fleet.replicas)
    assert.is_true(second.at - first.at < 0.5)
    first:wait_gone(0.2)
    second:reply()
    assert.equal(200, client:finish().status)
    assert.equal("up", fleet:replica_state(first.replica.name).operational)
  end)

  it("takes its belief back", function()
    local fleet = Fleet.alike(2, { policy = "prefix_affinity" })
    local client = fleet:connect()
    local text = ("A prompt that fills some blocks. "):rep(40)
    client:begin(chat_request(text))
    local first = take_any(fleet.replicas)
    first:send("HTTP/1.1 200 OK\nbroken")
    local second = take_any(fleet.replicas)
    second:reply()
    client:finish()
    assert.equal(0, fleet:replica_state(first.replica.name).index_blocks)
    assert.is_true(fleet:replica_state(second.replica.name).index_blocks > 15)
    client:begin(chat_request(text))
    local third = take_any(fleet.replicas)
    assert.equal(second.replica, third.replica)
    third:reply()
    client:finish()
  end)
end)

describe("a replica that has not read all of a request", function()
  after_each(Fleet.finish)

  local body = Fleet.chat(Text.long(8000000))
  local request = { path = "/v1/chat/completions", body = body }
  local refusal = "HTTP/1.1 413 Too Much\r\nContent-Length: 7\r\n\r\ntoo big"

  -- It answers as the head is there; what it does then is `act`.
  local function answer_early(fleet, act)
    for _, each in ipairs(fleet.replicas) do
      each.on_head = function(conn)
        conn:pause()
        conn:send(refusal)
        act(conn)
      end
    end
  end

  for what, act in pairs({
    ["and waits"] = function() end,
    ["and closes its side"] = function(conn) conn:half_close() end,
    ["and resets a little later"] = function(conn)
      loop.after(0.1, function() conn:reset() end)
    end,
  }) do
    it(("may answer %s: the answer passes, and nothing is run again"):format(what), function()
      local fleet = Fleet.alike(2)
      answer_early(fleet, act)
      local client = fleet:connect()
      local answer = client:request(request, 10)
      assert.equal("HTTP/1.1 413 Too Much", answer.start_line)
      assert.equal("too big", answer:body())
      local row = fleet:row(1)
      assert.equal("failed", row.outcome)
      assert.equal(413, row.status)
      assert.is_nil(row.moves)
      -- That connection is not for another request; the client's is.
      for _, each in ipairs(fleet.replicas) do each.on_head = nil end
      client:begin(chat_request("Hello"))
      local exchange = take_any(fleet.replicas)
      assert.equal(1, exchange.nth)
      exchange:reply()
      assert.equal(200, client:finish().status)
    end)
  end

  it("may be lost: another one gets all of it", function()
    local fleet = Fleet.alike(2)
    local lost
    for _, each in ipairs(fleet.replicas) do
      each.on_head = function(conn)
        if lost then return end
        lost = each
        conn:reset()
      end
    end
    local client = fleet:connect()
    client:begin(request)
    local exchange = take_any(fleet.replicas, 10)
    assert.not_equal(lost, exchange.replica)
    check.same_bytes(body, exchange.body)
    exchange:reply()
    assert.equal(200, client:finish().status)
    assert.same({ lost.name }, fleet:row(1).failed_on)
  end)
end)
