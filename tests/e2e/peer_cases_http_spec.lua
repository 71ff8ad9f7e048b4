-- Numbered cases, after public reports on other proxies: HTTP itself, where two readers of the same
-- bytes may see different messages, or one of them none.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")

local chat_request = Fleet.chat_request
local MB = 1048576

-- Sends bytes on a connection of its own: a 400 (or what is given), then the end, and nothing of it
-- has reached a replica.
local function assert_refused(fleet, what, bytes, status, code)
  local client = fleet:connect()
  client:send(bytes)
  local answer = client:expect()
  local ok, why = pcall(client.finish, client, 2)
  assert.is_true(ok, what .. ": " .. tostring(why))
  assert.equal(status or 400, answer.status, what)
  check.api_error(answer, answer.status, code or "invalid_http")
  assert.equal("close", answer:header("connection"), what)
  client:wait_end(3)
  assert.equal(0, Replica.count_all(fleet.replicas), what)
end

describe("an idle connection of the pool", function()
  after_each(Peers.finish)

  it("B31 may be closed by its engine at any time: no client sees that", function()
    local keep_alive = Peers.size(0.3, 1)
    local emulator = Peers.emulator(2, "--time-scale", "50", "--keep-alive", tostring(keep_alive))
    local fleet = Peers.start(emulator, { policy = "round_robin" })
    local lanes, asked = {}, 0
    for i = 1, 12 do lanes[i] = { client = fleet:connect(), at = loop.now() + i * 0.01 } end
    -- Each asks again about when its engine closes.
    local ends = loop.now() + Peers.size(4, 120)
    while loop.now() < ends do
      for i, lane in ipairs(lanes) do
        if lane.answer and lane.answer.done then
          assert.equal(200, lane.answer.status)
          lane.answer = nil
          lane.at = loop.now() + keep_alive * (0.9 + (asked * 7 + i) % 11 * 0.02)
        elseif lane.answer then
          assert.is_nil(lane.client.connection.ended)
        elseif lane.at <= loop.now() then
          asked = asked + 1
          lane.answer = lane.client:begin(chat_request("Hello " .. asked, { max_tokens = 1 }))
        end
      end
      loop.step(0.002)
    end
    for _, lane in ipairs(lanes) do
      if lane.answer then assert.equal(200, lane.client:finish().status) end
    end
    -- The engine closes exactly when the request comes.
    local stale = fleet:admin("/admin/status").exchanges.stale_resends
    local client = fleet:connect()
    for _, fault in ipairs({ "race", "race;orderly=1" }) do
      for _ = 1, 2 do assert.equal(200, client:request(chat_request("warm")).status) end
      emulator:fault(fault)
      for _ = 1, 20 do
        asked = asked + 1
        assert.equal(200, client:request(chat_request("Hello", { max_tokens = 1 })).status)
      end
      emulator:heal()
    end
    local status = fleet:admin("/admin/status")
    assert.equal(40, status.exchanges.stale_resends - stale)
    assert.equal(0, status.decisions.moves)
    assert.equal(status.requests.received, status.requests.outcomes.success)
    for _, address in ipairs(emulator.addresses) do
      assert.equal(0, fleet:replica_state(address).ejections)
    end
    if Peers.full then
      print(("B31: %d requests, %d found their connection closed"):format(asked, stale))
    end
  end)

  it("B31 is let go before its engine closes it, if that is known", function()
    local emulator = Peers.emulator(1, "--time-scale", "50", "--keep-alive", "1")
    local fleet = Peers.start(emulator, { timeouts = { pool_idle_ms = 400 } })
    local client = fleet:connect()
    for _, nap in ipairs({ 0.2, 0.38, 0.42, 0.8 }) do
      assert.equal(200, client:request(chat_request("Hello", { max_tokens = 1 })).status)
      loop.sleep(nap)
    end
    assert.equal(200, client:request(chat_request("Hello", { max_tokens = 1 })).status)
    local state = fleet:replica_state(emulator.addresses[1])
    assert.equal(0, state.connections.stale)
    assert.is_true(state.connections.opened >= 2 and state.connections.reused >= 1)
  end)
end)

describe("a message", function()
  after_each(Peers.finish)

  local post = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
  local smuggled = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n"

  it("B37 has no line end but CR LF", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    for what, bytes in pairs({
      ["a CR before a framing header"] =
        post .. "X: a\rTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n" .. smuggled,
      ["a CR at the end of a value"] = post .. "X: a\r\r\nContent-Length: 0\r\n\r\n",
      ["a CR within a name"] = post .. "X\rY: a\r\nContent-Length: 0\r\n\r\n",
      ["a CR in the request line"] = "GET /\rx HTTP/1.1\r\nHost: x\r\n\r\n",
      ["a CR instead of the last line end"] = post .. "Content-Length: 0\r\n\rX",
      ["a bare LF after the request line"] = "GET / HTTP/1.1\nHost: x\r\n\r\n",
      ["a bare LF after a header"] = post .. "X: a\nTransfer-Encoding: chunked\r\n\r\n" .. smuggled,
      ["a bare LF as the last line end"] = post .. "Content-Length: 0\r\n\n",
      ["all line ends bare"] = "POST / HTTP/1.1\nHost: x\nContent-Length: 0\n\n",
    }) do
      assert_refused(fleet, what, bytes)
    end
    assert.equal(200, fleet:chat("Hello").status)
    -- The replica's words are read as strictly.
    fleet.replicas[1].script = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nX: a\rContent-Length: 0\r\nContent-Length: 2\r\n\r\n{}")
    end
    check.api_error(fleet:chat("Hello"), 502, "all_replicas_failed")
  end)

  it("B39 has chunks whose sizes can be read in one way only", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local chunked = post .. "Transfer-Encoding: chunked\r\n\r\n"
    local rest = '{"a"}\r\n0\r\n\r\n'
    for what, size in pairs({
      ["LF alone"] = "5\n",
      ["LF within an extension"] = "5;a\nb\r\n",
      ["CR within an extension"] = "5;a\rb\r\n",
      ["CR CR LF"] = "5;a=\r\r\n",
      ["a huge extension"] = "5;" .. ("x"):rep(MB) .. "\r\n",
      ["an endless extension"] = "5;" .. ("x"):rep(MB),
      ["a thousand zeros before it"] = ("0"):rep(1000) .. "5\r\n",
      ["2^64 + 5"] = "10000000000000005\r\n",
      ["no number"] = ";a=b\r\n",
      ["a sign"] = "+5\r\n",
      ["a negative one"] = "-5\r\n",
      ["a prefix"] = "0x5\r\n",
      ["a blank before it"] = " 5\r\n",
      ["an underscore"] = "0_5\r\n",
    }) do
      assert_refused(fleet, what, chunked .. size .. rest)
    end
    for what, tail in pairs({
      ["LF alone after a chunk"] = "5\r\n{\"a\"}\n0\r\n\r\n",
      ["no line end after a chunk"] = "5\r\n{\"a\"}0\r\n\r\n",
      ["a bare CR in a trailer"] = "0\r\nX: a\rY: b\r\n\r\n",
      ["a bare LF after the trailers"] = "0\r\n\n",
    }) do
      assert_refused(fleet, what, chunked .. tail)
    end
    for _, size in ipairs({ "ffffffffffffffff", "7fffffffffffffff", "fffffffffffffff0" }) do
      local client = fleet:connect()
      client:send(chunked .. size .. "\r\n" .. ("x"):rep(100))
      local answer = client:expect()
      -- Over the limit at once, or when so much has come; never a small number.
      if loop.try(function() return answer.done end, 0.05) then
        assert.is_true(answer.status == 400 or answer.status == 413, "status " .. answer.status)
      end
      client:close()
    end
    assert.equal(0, Replica.count_all(fleet.replicas))
    -- What is right, however odd, passes.
    local answer = http.request(fleet.address, { path = "/x", chunks = { "a" } })
    assert.equal(200, answer.status)
    local client = fleet:connect()
    client:send("POST /x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      .. '0005;a="b;c";d\r\nhello\r\n0;e\r\nT: r\r\n\r\n')
    client:expect()
    assert.equal(200, client:finish().status)
    assert.equal("hello", fleet.replicas[1].exchanges[2].body)
  end)

  it("B41 may follow another in the same bytes, and is not lost", function()
    local fleet = Fleet.start({ replicas = 2, config = { policy = "round_robin" } })
    for _, replica in ipairs(fleet.replicas) do
      replica.script = function(exchange)
        local said = exchange.body ~= "" and exchange.body or exchange.request.target
        if not said:find("slow", 1, true) then exchange:reply({ body = said }) end
      end
    end
    local client = fleet:connect()
    local function answered(said)
      client:expect()
      assert.equal(said, client:finish():body())
    end
    client:send(http.text({ path = "/one" }) .. http.text({ path = "/two" }))
    answered("/one")
    answered("/two")
    -- The second one's body comes in two parts.
    local text = http.text({ path = "/get" }) .. http.text({ path = "/post", body = "split body" })
    client:send(text:sub(1, -6))
    answered("/get")
    client:send(text:sub(-5))
    answered("split body")
    -- The first is slow, the second fast: the order is that of the requests.
    local function take(body)
      return loop.wait(function()
        local exchange = Replica.take_any(fleet.replicas)
        return exchange.body == body and exchange
      end)
    end
    client:send(http.text({ path = "/post", body = "slow 1" }) .. http.text({ path = "/fast" }))
    local answer = client:expect()
    local exchange = take("slow 1")
    exchange:stream()
    local event = exchange:event("one")
    client:wait_body(#event)
    loop.sleep(0.05)
    assert.equal(event, answer:body())
    exchange:finish()
    client:finish()
    answered("/fast")
    -- A hundred, in order.
    local all = {}
    for i = 1, 100 do
      all[i] = http.text(i % 3 == 0 and { path = "/healthz" }
        or { path = "/n", body = "number " .. i })
    end
    client:send(table.concat(all))
    for i = 1, 100 do answered(i % 3 == 0 and "ok\n" or "number " .. i) end
    -- As many as fit behind a slow one, and no more, until it is done.
    local before = fleet.router:rss()
    client:send(http.text({ path = "/post", body = "slow 2" }))
    exchange = take("slow 2")
    local one = http.text({ path = "/n", body = Text.long(2000) })
    local batch, batches = one:rep(500), 22 -- 23 MB
    for _ = 1, batches do client:send(batch) end
    loop.sleep(0.3)
    assert.is_true(client.connection.out_bytes > 8 * MB, "it reads on without end")
    assert.is_true(Peers.grown(fleet, before) < 4 * MB)
    -- It is not read any more, and is missed all the same.
    client:reset()
    exchange:wait_gone(0.5)
    local row = fleet:row(fleet:admin("/admin/status").requests.received)
    assert.equal("client_gone", row.error)
  end)

  it("B43 to an HTTP/1.0 client has no chunks", function()
    local fleet = Fleet.start()
    local replica = fleet.replicas[1]
    local function old(request, keep_alive)
      request.version, request.host = "1.0", false
      request.headers = keep_alive and { "Connection: keep-alive" } or nil
      return request
    end
    for _, keep_alive in ipairs({ false, true }) do
      local client = fleet:connect()
      local function assert_end(answer)
        assert.is_nil(answer:header("transfer-encoding"))
        if not keep_alive or answer.framing == "close" then
          assert.equal("fin", client:wait_end(1))
          client = fleet:connect()
        else
          assert.equal("keep-alive", answer:header("connection"):lower())
          assert.is_nil(client.connection.ended)
        end
      end
      client:begin(old({ path = "/healthz" }, keep_alive))
      local answer = client:finish()
      assert.equal("ok\n", answer:body())
      assert_end(answer)
      -- A sized answer.
      client:begin(old(chat_request("Hello"), keep_alive))
      replica:take():reply({ body = "{}" })
      answer = client:finish()
      assert.equal("{}", answer:body())
      assert_end(answer)
      -- A chunked one is undone; it can only end with the connection.
      answer = client:begin(old(chat_request("Hello", { stream = true }), keep_alive))
      local exchange = replica:take()
      exchange:stream()
      local events = exchange:event("one")
      client:wait_body(#events) -- as it comes
      events = events .. exchange:event("two") .. "data: [DONE]\n\n"
      exchange:finish()
      client:finish()
      assert.equal("close", answer.framing)
      assert.equal(events, answer:body())
      assert_end(answer)
    end
    assert.equal(4, #fleet:rows(4))
    assert_refused(Fleet.start(), "HTTP/1.1 without a host", "GET / HTTP/1.1\r\n\r\n")
  end)
end)
