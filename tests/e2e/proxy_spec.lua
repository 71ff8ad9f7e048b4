-- What passes through the ingress, in both directions: connections, heads, bodies, streams.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")

local chat_request = Fleet.chat_request

describe("a client's connection", function()
  after_each(Fleet.finish)

  it("takes one request after the other", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local client = fleet:connect()
    for i = 1, 5 do
      local answer = client:request(chat_request("Question " .. i))
      assert.equal(200, answer.status)
      assert.is_nil(answer:header("connection"))
    end
    assert.equal(1, fleet:admin("/admin/status").listeners[1].accepted)
    assert.equal(5, #fleet:rows(5))
  end)

  it("takes requests that come all at once, and answers in their order", function()
    local fleet = Fleet.start({ script = function(exchange)
      exchange:reply({ body = { said = exchange.body:match('"content":"(.-)"') } })
    end })
    local client = fleet:connect()
    client:send(http.text(chat_request("first")) .. http.text(chat_request("second"))
      .. http.text({ path = "/healthz" }) .. http.text(chat_request("third")))
    for _, said in ipairs({ "first", "second", "health", "third" }) do
      client:expect()
      local answer = client:finish()
      assert.equal(200, answer.status)
      if said == "health" then
        assert.equal("ok\n", answer:body())
      else
        assert.equal(said, answer:json().said)
      end
    end
  end)

  it("may trickle a request in, byte by byte", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local client = fleet:connect()
    local text = http.text(chat_request("Hello"))
    for i = 1, #text do
      client:send(text:sub(i, i))
      loop.step(0)
    end
    client:expect()
    assert.equal(200, client:finish().status)
    check.same_bytes(Fleet.chat("Hello"), fleet.replicas[1]:take().body)
  end)

  it("closes after the answer when the client asks for it", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local client = fleet:connect()
    local answer = client:request(chat_request("Hello", nil, { "Connection: close" }))
    assert.equal("close", answer:header("connection"))
    assert.equal("fin", client:wait_end(1))
  end)

  it("may speak HTTP/1.0: chunks are undone and the end is the connection's", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    local request = chat_request("Hello")
    request.version = "1.0"
    client:begin(request)
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    local events = exchange:event("one") .. exchange:event("two") .. "data: [DONE]\n\n"
    exchange:finish()
    local answer = client:finish()
    assert.is_nil(answer:header("transfer-encoding"))
    assert.equal("close", answer:header("connection"))
    assert.equal(events, answer:body())
    assert.equal("success", fleet:row(1).outcome)
  end)

  it("is told to go on when it asks before it sends a body", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local client = fleet:connect()
    local text = http.text(chat_request("Hello", nil, { "Expect: 100-continue" }))
    local head = text:match("^.-\r\n\r\n")
    client:send(head)
    local answer = client:expect()
    loop.wait(function() return answer.interim == 100 end, 1, "100 Continue")
    assert.equal(0, fleet.replicas[1]:count())
    client:send(text:sub(#head + 1))
    assert.equal(200, client:finish().status)
    assert.is_nil(fleet.replicas[1]:take().request:header("expect"))
  end)

  it("is refused when it expects what nobody here can do", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    for expectation, status in pairs({ foo = 417, ["100-Continue"] = 200, ["100-continue, x"] = 417,
      ["100-continue\r\nExpect: foo"] = 417 }) do
      local answer = fleet:connect():request(
        chat_request("Hello", nil, { "Expect: " .. expectation }))
      assert.equal(status, answer.status)
      if status == 417 then check.api_error(answer, 417, "expectation_failed") end
    end
    -- HTTP/1.0 knows no expectations.
    local old = chat_request("Hello", nil, { "Expect: foo" })
    old.version = "1.0"
    assert.equal(200, fleet:connect():request(old).status)
    for i, row in ipairs(fleet:rows(5)) do
      assert.equal(row.status == 417 and "expectation_failed" or nil, row.error, i)
    end
  end)
end)

describe("a request body", function()
  after_each(Fleet.finish)

  it("arrives byte for byte when it has a length", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    -- Odd spacing, escapes, a duplicate key and a number that a double cannot hold.
    local body = '{ "model" :\t"test-model",\r\n "seed": 9223372036854775807, "x": 1e2, "x": -0.0,'
      .. ' "messages" : [ {"role":"user", "content":"\\u00e9\\/\\ud83d\\ude00 \xc3\xa9"} ] }  \n'
    local answer = fleet:request({ path = "/v1/chat/completions", body = body })
    assert.equal(200, answer.status)
    local exchange = fleet.replicas[1]:take()
    check.same_bytes(body, exchange.body)
    assert.equal(tostring(#body), exchange.request:header("content-length"))
  end)

  it("arrives byte for byte when it comes in chunks", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local body = Fleet.chat(Text.long(300000))
    local client = fleet:connect()
    client:send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      .. "Transfer-Encoding: chunked\r\n\r\n")
    local at, size = 1, 1
    while at <= #body do
      local piece = body:sub(at, at + size - 1)
      client:send(("%X;note=%d\r\n%s\r\n"):format(#piece, size, piece))
      at, size = at + #piece, size * 3
    end
    client:send("0\r\nX-Trailer: dropped\r\n\r\n")
    client:expect()
    assert.equal(200, client:finish().status)
    local exchange = fleet.replicas[1]:take()
    check.same_bytes(body, exchange.body)
    assert.is_nil(exchange.request:header("transfer-encoding"))
    assert.equal(tostring(#body), exchange.request:header("content-length"))
    -- The connection is at the right place for the next one.
    assert.equal(200, client:request(chat_request("next")).status)
  end)

  it("of many megabytes arrives at a replica that reads slowly", function()
    local fleet = Fleet.start()
    local body = Fleet.chat(Text.long(12000000))
    local client = fleet:connect()
    client:begin({ path = "/v1/chat/completions", body = body })
    local exchange = fleet.replicas[1]:take(15)
    check.same_bytes(body, exchange.body)
    exchange:reply()
    assert.equal(200, client:finish().status)
    local row = fleet:row(1)
    assert.equal(#body, row.bytes_in)
    assert.equal("success", row.outcome)
  end)

  it("that is compressed passes as it is, by load", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local body = "\31\139\8\0" .. ("\0\255\1"):rep(100)
    local answer = fleet:request({
      path = "/v1/chat/completions", body = body, headers = { "Content-Encoding: gzip" },
    })
    assert.equal(200, answer.status)
    check.same_bytes(body, fleet.replicas[1]:take().body)
    assert.equal("opaque", fleet:row(1).reason)
  end)
end)

describe("a request head", function()
  after_each(Fleet.finish)

  local function forwarded(fleet, request)
    local answer = fleet:request(request)
    assert.equal(200, answer.status)
    return fleet.replicas[1]:take().request
  end

  it("keeps path and query byte for byte", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    for _, target in ipairs({
      "/v1/chat/completions?api-version=2024-10-21&x=%2F%2f&y=+&&z",
      "/v1/chat/completions?",
      "/a//b/../c/./%7Euser/%c3%a9;p=1?q=a?b/c",
      "/?a=[1]&b={x}|^`",
    }) do
      local request = chat_request("Hello")
      request.path = target
      assert.equal(target, forwarded(fleet, request).target)
    end
    assert.equal("chat", fleet:rows(4)[1].endpoint)
    assert.equal("other", fleet:rows(4)[3].endpoint)
  end)

  it("loses what is for one hop only, and what only we may say", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local head = forwarded(fleet, chat_request("Hello", nil, {
      "Connection: keep-alive, X-Private", "X-Private: 1", "Keep-Alive: timeout=5", "TE: trailers",
      "Trailer: X-T", "Proxy-Connection: keep-alive", "Upgrade: h2c",
      "Proxy-Authorization: Basic eA==",
      "X-Data-Parallel-Rank: 7", "x-kvroute-tag: secret-project",
      "Authorization: Bearer client", "X-Stainless-Retry-Count: 1", "x-UPPER-lower:  spaced value ",
      "X-Empty:", "Cookie: a=1", "Cookie: b=2",
    }))
    for _, name in ipairs({
      "connection", "x-private", "keep-alive", "te", "trailer", "proxy-connection", "upgrade",
      "proxy-authorization", "x-data-parallel-rank", "x-kvroute-tag",
    }) do
      assert.is_nil(head:header(name), name)
    end
    assert.equal("Bearer client", head:header("authorization"))
    assert.equal("1", head:header("x-stainless-retry-count"))
    assert.equal("spaced value", head:header("x-upper-lower"))
    assert.equal("", head:header("x-empty"))
    assert.same({ "a=1", "b=2" }, head:all("cookie"))
    local names = {}
    for _, header in ipairs(head.headers) do names[header[1]] = true end
    assert.is_true(names["x-UPPER-lower"], "the case of a name is kept")
  end)

  it("names the replica as host, and the client in X-Forwarded-*", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local request = chat_request("Hello", nil, { "X-Forwarded-For: 203.0.113.9" })
    request.host = "api.example.test:8443"
    local head = forwarded(fleet, request)
    assert.same({ fleet.replicas[1].name }, head:all("host"))
    assert.same({ "203.0.113.9, 127.0.0.1" }, head:all("x-forwarded-for"))
    assert.same({ "api.example.test:8443" }, head:all("x-forwarded-host"))
  end)

  it("has a request id: the client's, or one of ours that is never the same", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local answer = fleet:chat("Hello", nil, { "X-Request-Id: trace-0815" })
    assert.equal("trace-0815", answer:header("x-kvroute-request-id"))
    assert.same({ "trace-0815" }, fleet.replicas[1]:take().request:all("x-request-id"))
    assert.equal("trace-0815", fleet:row(1).request_id)
    local seen = {}
    for i = 2, 6 do
      local id = fleet:chat("Hello"):header("x-kvroute-request-id")
      assert.is_truthy(id:match("^%x+$"))
      assert.is_nil(seen[id])
      seen[id] = true
      assert.same({ id }, fleet.replicas[1]:take().request:all("x-request-id"))
      assert.equal(id, fleet:row(i).request_id)
    end
  end)

  it("carries the replica's own key and rank instead of the client's", function()
    local fleet = Fleet.start({ replicas = {
      { script = Replica.answers(), settings = { key = "replica-secret", rank = 3 } },
    } })
    local head = forwarded(fleet, chat_request("Hello", nil, {
      "Authorization: Bearer client-secret", "X-Data-Parallel-Rank: 1",
    }))
    assert.same({ "Bearer replica-secret" }, head:all("authorization"))
    assert.same({ "3" }, head:all("x-data-parallel-rank"))
    assert.is_nil(Fleet.read(fleet.folder .. "/rows.jsonl"):find("secret", 1, true))
    assert.is_nil(fleet.router:stderr():find("secret", 1, true))
  end)
end)

describe("an answer", function()
  after_each(Fleet.finish)

  it("streams: each event is with the client before the next one exists", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    local answer = client:begin(chat_request("Hello", { stream = true }))
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    local sent = ""
    for i = 1, 20 do
      sent = sent .. exchange:event("event " .. i)
      client:wait_body(#sent, 1)
      assert.equal(sent, answer:body())
    end
    exchange:finish()
    client:finish()
    local row = fleet:row(1)
    assert.equal(20, row.events)
    assert.is_true(row.done_seen)
    assert.is_true(row.stream)
  end)

  it("keeps its framing: chunks are as the replica cut them", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    local framed = "5\r\ndata:\r\n00a;x=1\r\n {\"a\": 1}\n\r\n1\r\n\n\r\n0\r\nX-Trailer: x\r\n\r\n"
    exchange:send(framed)
    local answer = client:finish()
    check.same_bytes(framed, answer:bytes():match("\r\n\r\n(.*)$"))
  end)

  it("keeps status, phrase and headers, but for those of one hop", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    fleet.replicas[1]:take():reply({
      status = 299, phrase = "Quite Fine", body = "{}",
      headers = {
        "X-Engine: v1", "Set-Cookie: a=1", "Set-Cookie: b=2", "Connection: X-Private",
        "X-Private: 1", "Keep-Alive: timeout=5, max=100", "openai-processing-ms: 12",
      },
    })
    local answer = client:finish()
    assert.equal("HTTP/1.1 299 Quite Fine", answer.start_line)
    assert.equal("v1", answer:header("x-engine"))
    assert.equal("12", answer:header("openai-processing-ms"))
    assert.same({ "a=1", "b=2" }, answer:all("set-cookie"))
    assert.is_nil(answer:header("keep-alive"))
    assert.is_nil(answer:header("x-private"))
    assert.equal("{}", answer:body())
  end)

  it("without a length ends with its connection, and is whole", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    exchange:send("HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\nall of")
    client:wait_body(6)
    exchange:send(" it")
    exchange:close()
    local answer = client:finish()
    assert.equal("all of it", answer:body())
    assert.equal("fin", client:wait_end(1))
    assert.equal("success", fleet:row(1).outcome)
  end)

  it("without a body leaves the connection usable", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin({ method = "HEAD", path = "/thing" })
    fleet.replicas[1]:take():send("HTTP/1.1 200 OK\r\nContent-Length: 5000\r\n\r\n")
    assert.equal("5000", client:finish():header("content-length"))
    client:begin({ method = "DELETE", path = "/thing" })
    fleet.replicas[1]:take():send("HTTP/1.1 204 No Content\r\nX-A: b\r\n\r\n")
    assert.equal(204, client:finish().status)
    client:begin({ path = "/thing" })
    fleet.replicas[1]:take():send("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n")
    assert.equal(304, client:finish().status)
    client:begin(chat_request("Hello"))
    fleet.replicas[1]:take():reply()
    assert.equal(200, client:finish().status)
    assert.equal(4, #fleet:rows(4))
  end)

  it("may be preceded by interim answers, which are for one hop", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    local answer = client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    exchange:send("HTTP/1.1 102 Processing\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n")
    loop.sleep(0.02)
    exchange:reply()
    assert.equal(200, client:finish().status)
    assert.is_nil(answer.interim)
  end)

  it("waits for a client that reads slowly, and costs no memory", function()
    local fleet = Fleet.start()
    local client = fleet:connect(16384)
    local answer = client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    local bytes, part = 32000000, Text.long(65536)
    exchange:send(("HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n"):format(bytes))
    client:wait(function() return true end)
    client:pause()
    local before = fleet.router:rss()
    exchange:send(part:rep(math.floor(bytes / #part)) .. part:sub(1, bytes % #part))
    -- Until nothing moves any more.
    local sent = -1
    loop.wait(function()
      local stands = exchange.connection.sent == sent
      sent = exchange.connection.sent
      if not stands then loop.sleep(0.1) end
      return stands
    end, 5, "the replica to be held back")
    assert.is_true(sent < 20000000, "the replica could send " .. sent)
    assert.is_true(Peers.grown(fleet, before) < 2000000, "the router holds the bytes")
    client:resume()
    client:finish(20)
    assert.equal(bytes, answer.body_bytes)
    local body = answer:body()
    check.same_bytes(part, body:sub(1, #part))
    check.same_bytes(part:sub(1, bytes % #part), body:sub(-(bytes % #part)))
    assert.is_true(Peers.grown(fleet, before) < 2000000, "the router held the bytes")
    assert.equal(bytes, fleet:row(1).bytes_out)
  end)
end)
