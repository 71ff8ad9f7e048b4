-- What happens when someone fails: the client, a replica before or after the first body byte, all
-- replicas, the router itself when it is told to end.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")
local signal = require("posix.signal")

local chat_request = Fleet.chat_request
local take_any, count_all = Replica.take_any, Replica.count_all

-- Replicas that look alike, asked in turn.
local function start(replicas, config, script)
  config = config or {}
  config.policy = config.policy or "round_robin"
  return Fleet.start({ replicas = replicas, config = config, script = script })
end

local function is_down(fleet, name)
  return function() return fleet:replica_state(name).operational == "down" end
end

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
        local fleet = start(2)
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
    local fleet = start(1)
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
    local fleet = start(1)
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
    local fleet = start(1)
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
      local fleet = start(2)
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
    local fleet = start(2, { health = { interval_ms = 60000 } }, Replica.answers())
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
    assert.is_true(is_down(fleet, fleet.replicas[1].name)())
    assert.equal(1, fleet:replica_state(fleet.replicas[1].name).ejections)
  end)

  it("lets no connection come about: another one answers after connect_ms", function()
    local fleet = start(2, { health = { interval_ms = 60000 }, timeouts = { connect_ms = 200 } },
      Replica.answers())
    fleet.replicas[1]:clog()
    for _ = 1, 2 do assert.equal(200, fleet:chat("Hello").status) end
    local moved
    for _, row in ipairs(fleet:rows(2)) do moved = row.moves and row or moved end
    assert.same({ fleet.replicas[1].name }, moved.failed_on)
    assert.is_true(moved.overhead_ms >= 200 and moved.overhead_ms < 700)
  end)

  it("moves a request twice at most", function()
    local fleet = start(4)
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
    local fleet = start(2, { moves = 0 })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    take_any(fleet.replicas):reset()
    check.api_error(client:finish(), 502, "all_replicas_failed")
    assert.equal(1, count_all(fleet.replicas))
  end)

  it("is the only one: 502, and soon it is 503", function()
    local fleet = start(1, { health = { interval_ms = 60000 } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    take_any(fleet.replicas):reset()
    check.api_error(client:finish(), 502, "all_replicas_failed")
    local answer = client:request(chat_request("Hello"))
    check.api_error(answer, 503, "no_replicas")
    assert.is_truthy(tonumber(answer:header("retry-after")))
  end)

  it("fails a path that is not routed by policy: it moves, too", function()
    local fleet = start(2)
    local client = fleet:connect()
    client:begin({ path = "/tokenize", body = "{}" })
    take_any(fleet.replicas):reset()
    take_any(fleet.replicas):reply({ body = "moved" })
    assert.equal("moved", client:finish():body())
    assert.equal(1, fleet:row(1).moves)
  end)

  it("takes too long for first_byte_ms: another one answers, and it is not to blame", function()
    local fleet = start(2, { timeouts = { first_byte_ms = 200 } })
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
    local fleet = start(2, { policy = "prefix_affinity" })
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
      local fleet = start(2)
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
    local fleet = start(1, { health = { interval_ms = 60000 } })
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
    local fleet = start(1, { timeouts = { idle_ms = 200 } })
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
    local fleet = start(1, { timeouts = { total_ms = 300 } })
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

-- Sends pieces of a stream to a client that does not read, each when the one before has passed the
-- router, at most so many. Returns the client, the exchange and how many passed before it stood.
local PIECE = ("x"):rep(16000)
local function send_ahead(fleet, headers, most)
  local client = fleet:connect(16384)
  client:begin(chat_request("Hello", { stream = true }, headers))
  client:pause()
  local exchange = take_any(fleet.replicas)
  exchange:stream()
  local count = 0
  local function has_passed()
    local open = fleet:admin("/admin/requests").requests[1]
    return open.bytes_out >= (count + 1) * #PIECE
  end
  while count < most do
    exchange:chunk(PIECE)
    if not loop.try(has_passed, 0.2) then break end
    count = count + 1
  end
  return client, exchange, count
end

-- A client that has read nothing of an answer that the replica has finished; its last bytes are
-- still with the router. Returns the client and the length of the body.
local function ahead_of_its_client(fleet, headers)
  local trial, _, room = send_ahead(fleet, headers, 1000)
  trial:reset()
  local client, exchange, sent = send_ahead(fleet, headers, room - 2)
  assert.equal(room - 2, sent)
  exchange:send("0\r\n\r\n")
  fleet:rows(2) -- it is done
  return client, sent * #PIECE
end

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
      local fleet = start(2)
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
    local fleet = start(2)
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

describe("an error of a replica", function()
  after_each(Fleet.finish)

  it("that says it is full is not the last word while another is there", function()
    local fleet = start(3)
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
    local fleet = start(2)
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
    local fleet = start(1)
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
    local fleet = start(0)
    assert_none(fleet, "no_replicas")
    local answer = fleet:request({ path = "/tokenize", body = "{}" })
    check.api_error(answer, 503, "no_replicas")
  end)

  it("that is up: 503", function()
    local fleet = start(2)
    for _, each in ipairs(fleet.replicas) do each.healthy = false end
    for _, each in ipairs(fleet.replicas) do loop.wait(is_down(fleet, each.name)) end
    assert_none(fleet, "no_replicas")
    assert.equal(0, count_all(fleet.replicas))
  end)

  it("that is not draining: 503", function()
    local fleet = start(1)
    fleet:admin("/admin/replicas/drain", { replica = fleet.replicas[1].name })
    assert_none(fleet, "draining")
    fleet:admin("/admin/replicas/restore", { replica = fleet.replicas[1].name })
    fleet.replicas[1].script = Replica.answers()
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("that has room: 503", function()
    local fleet = start({ { settings = { capacity = 1 } } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = take_any(fleet.replicas)
    assert_none(fleet, "at_capacity")
    exchange:reply()
    assert.equal(200, client:finish().status)
  end)
end)

describe("health", function()
  after_each(Fleet.finish)

  it("ejects after two failed probes and readmits after two passes", function()
    local fleet = start(2, { health = { interval_ms = 100, ramp_ms = 300 } }, Replica.answers())
    local sick = fleet.replicas[1]
    local asked = sick.asked["/health"]
    sick.healthy = false
    loop.wait(is_down(fleet, sick.name), 2)
    assert.is_true(sick.asked["/health"] - asked <= 3)
    for _ = 1, 4 do assert.equal(200, fleet:chat("Hello").status) end
    assert.equal(0, sick:count())
    sick.healthy = true
    asked = sick.asked["/health"]
    loop.wait(function() return not is_down(fleet, sick.name)() end, 2)
    assert.is_true(sick.asked["/health"] - asked >= 2)
    assert.equal("ramping", fleet:replica_state(sick.name).operational)
    fleet:wait_ready()
    for _ = 1, 2 do assert.equal(200, fleet:chat("Hello").status) end
    assert.equal(1, sick:count())
  end)

  it("never touches the streams or the counts of a replica", function()
    local fleet = start(1)
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    client:wait_body(#exchange:event("one"))
    fleet.replicas[1].healthy = false
    loop.wait(is_down(fleet, fleet.replicas[1].name), 2)
    assert.equal(1, fleet:replica_state(fleet.replicas[1].name).in_flight)
    exchange:event("two")
    exchange:finish()
    assert.equal(200, client:finish().status)
    assert.equal("success", fleet:row(1).outcome)
    assert.equal(0, fleet:replica_state(fleet.replicas[1].name).in_flight)
  end)
end)

describe("a client that reads slowly", function()
  after_each(Fleet.finish)

  it("gets all of an answer that ends its connection, however long it takes", function()
    local fleet = start(1)
    local client, length = ahead_of_its_client(fleet, { "Connection: close" })
    loop.sleep(3) -- longer than a client may linger that has all of it
    client:resume()
    assert.equal(length, client:finish(10).body_bytes)
    assert.equal("fin", client:wait_end(3))
  end)
end)

describe("a pooled connection", function()
  after_each(Fleet.finish)

  -- A replica whose idle connection dies as the next request reaches it.
  for _, how in ipairs({ "close", "reset" }) do
    it(("that is stale (%s): the request is sent again, and nobody notices"):format(how), function()
      local fleet = start(2, { policy = "session_affinity" })
      local client = fleet:connect()
      local request = chat_request("Hello", nil, { "x-session-id: s" })
      client:begin(request)
      local first = take_any(fleet.replicas)
      first:reply()
      client:finish()
      client:begin(request)
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
    local fleet = start(2, { policy = "session_affinity" })
    local client = fleet:connect()
    local request = chat_request("Hello", nil, { "x-session-id: s" })
    client:begin(request)
    local first = take_any(fleet.replicas)
    first:reply()
    client:finish()
    client:begin(request)
    first.replica:take():reset()
    first.replica:take():reset()
    local last = take_any(fleet.replicas)
    assert.not_equal(first.replica, last.replica)
    last:reply()
    assert.equal(200, client:finish().status)
    assert.same({ first.replica.name }, fleet:row(2).failed_on)
  end)

  it("that said a byte of its answer is not stale: the request moves", function()
    local fleet = start(2, { policy = "session_affinity" })
    local client = fleet:connect()
    local request = chat_request("Hello", nil, { "x-session-id: s" })
    client:begin(request)
    local first = take_any(fleet.replicas)
    first:reply()
    client:finish()
    client:begin(request)
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
    local fleet = start(1, nil, Replica.answers())
    fleet:chat("Hello")
    local name = fleet.replicas[1].name
    assert.equal(1, fleet:replica_state(name).connections.idle)
    fleet.replicas[1]:take():close()
    loop.wait(function() return fleet:replica_state(name).connections.idle == 0 end, 1)
    assert.equal(200, fleet:chat("Hello").status)
    assert.equal(0, fleet:replica_state(name).connections.stale)
  end)

  it("is let go before the engine would close it", function()
    local fleet = start(1, { timeouts = { pool_idle_ms = 200 } }, Replica.answers())
    fleet:chat("Hello")
    local exchange = fleet.replicas[1]:take()
    local took = exchange:wait_gone(1, loop.now())
    assert.is_true(took > 0.1 and took < 0.5, "took " .. took)
  end)
end)

describe("the router, told to end", function()
  after_each(Fleet.finish)

  it("takes no more connections, finishes its streams and writes their rows", function()
    local fleet = start(1)
    local idle, client = fleet:connect(), fleet:connect()
    idle:request({ path = "/healthz" })
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    local bytes = #exchange:event("one")
    client:wait_body(bytes)
    fleet:terminate()
    assert.equal("fin", idle:wait_end(1))
    loop.wait(function() return not pcall(fleet.connect, fleet) end, 1, "connections to be refused")
    for i = 1, 5 do
      loop.sleep(0.05)
      bytes = bytes + #exchange:event("after " .. i)
      client:wait_body(bytes)
      assert.is_true(fleet.router:alive())
    end
    exchange:finish()
    local answer = client:finish()
    assert.equal(bytes + #"data: [DONE]\n\n", answer.body_bytes)
    assert.equal("fin", client:wait_end(1))
    fleet:stop(1)
    local row = fleet:row(1)
    assert.equal("success", row.outcome)
    assert.equal(6, row.events)
  end)

  it("cuts what is open at the deadline", function()
    local fleet = start(1, { timeouts = { drain_ms = 300 } })
    local client, silent = fleet:connect(), fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    client:wait_body(#exchange:event("one"))
    silent:begin(chat_request("Hello"))
    local unanswered = take_any(fleet.replicas)
    local began = loop.now()
    fleet:terminate()
    assert.equal("reset", client:wait_end(1))
    local took = loop.now() - began
    assert.is_true(took > 0.25 and took < 0.6, "took " .. took)
    silent:wait_end(1)
    exchange:wait_gone(1)
    unanswered:wait_gone(1)
    fleet:stop(1)
    local rows = fleet:rows(2)
    for _, row in ipairs(rows) do
      assert.equal("dropped", row.outcome)
      assert.equal("shutdown", row.error)
    end
  end)

  it("cuts at once when told twice", function()
    local fleet = start(1, { timeouts = { drain_ms = 60000 } })
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = take_any(fleet.replicas)
    exchange:stream()
    client:wait_body(#exchange:event("one"))
    fleet:terminate()
    loop.sleep(0.1)
    assert.is_true(fleet.router:alive())
    fleet.router:signal(signal.SIGINT)
    client:wait_end(1)
    fleet:stop(1)
    assert.equal("shutdown", fleet:row(1).error)
  end)

  for _, header in ipairs({ "Connection: keep-alive", "Connection: close" }) do
    it(("leaves no client without the rest of its answer (%s)"):format(header), function()
      local fleet = start(1)
      local client, length = ahead_of_its_client(fleet, { header })
      fleet:terminate()
      loop.sleep(0.3)
      client:resume()
      assert.equal(length, client:finish(10).body_bytes)
      fleet:stop(3)
    end)
  end

  it("lets a request arrive that has begun to", function()
    local fleet = start(1, nil, Replica.answers())
    local client = fleet:connect()
    local text = http.text(chat_request("Hello"))
    client:send(text:sub(1, #text - 5))
    loop.sleep(0.05)
    fleet:terminate()
    loop.sleep(0.1)
    client:send(text:sub(#text - 4))
    client:expect()
    local answer = client:finish()
    assert.equal(200, answer.status)
    assert.equal("close", answer:header("connection"))
    fleet:stop(2)
  end)

  it("ends at once when nothing is open, whatever is idle", function()
    local fleet = start(2, nil, Replica.answers())
    local client = fleet:connect()
    for i = 1, 4 do client:request(chat_request("Hello " .. i)) end
    local began = loop.now()
    fleet:stop(2)
    assert.is_true(loop.now() - began < 0.5)
    assert.equal(4, #fleet:rows(4))
  end)
end)
