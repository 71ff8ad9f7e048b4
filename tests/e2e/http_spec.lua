-- The rest of HTTP: answers without bodies, answers that come early or end with the connection,
-- whose Host a replica sees, which headers stay here, IPv6, and replicas by name.
local socket = require("posix.sys.socket")
local unistd = require("posix.unistd")
local connection = require("e2e.support.connection")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

describe("an answer without a body", function()
  after_each(Fleet.finish)

  -- Sends a request, lets the replica answer with these bytes, and one more request after it.
  local function pass(request, bytes)
    local fleet = Fleet.start()
    local client = fleet:connect()
    local answer = client:begin(request)
    local exchange = fleet.replicas[1]:take()
    exchange:send(bytes)
    client:finish(2)
    client:begin({ path = "/next" })
    local again = fleet.replicas[1]:take()
    again:reply()
    assert.equal(200, client:finish(2).status)
    return answer, exchange, again
  end

  it("to HEAD has the length it would have, and no more", function()
    local answer = pass({ method = "HEAD", path = "/x" },
      "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 12345\r\n\r\n")
    assert.equal("12345", answer:header("content-length"))
    assert.equal("text/plain", answer:header("content-type"))
    assert.equal("", answer:body())
  end)

  it("to HEAD may say that it would come in chunks", function()
    local answer = pass({ method = "HEAD", path = "/x" },
      "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
    assert.equal(200, answer.status)
    assert.equal("", answer:body())
  end)

  it("of status 204 has no length either, whatever the replica says", function()
    local answer = pass({ method = "DELETE", path = "/x" },
      "HTTP/1.1 204 No Content\r\nX-A: b\r\nContent-Length: 0\r\n\r\n")
    assert.equal(204, answer.status)
    assert.equal("b", answer:header("x-a"))
    assert.is_nil(answer:header("content-length"))
  end)

  it("of status 304 keeps its headers", function()
    local answer = pass({ path = "/x" },
      'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 77\r\n\r\n')
    assert.equal(304, answer.status)
    assert.equal('"a"', answer:header("etag"))
    assert.equal("77", answer:header("content-length"))
  end)

  it("that brings one all the same: it is nobody's, and its connection ends", function()
    local answer, exchange, again = pass({ method = "DELETE", path = "/x" },
      "HTTP/1.1 204 No Content\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
    assert.equal(204, answer.status)
    assert.is_true(exchange.connection ~= again.connection)
  end)
end)

describe("an answer", function()
  after_each(Fleet.finish)

  it("comes after interim ones, which are for the router", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    local answer = client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    exchange:send("HTTP/1.1 100 Continue\r\n\r\n"
      .. "HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 1")
    loop.sleep(0.02)
    exchange:send("02 Processing\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
    assert.equal("{}", client:finish(2):body())
    assert.is_nil(answer.interim)
    assert.is_nil(answer:header("link"))
    assert.equal(200, fleet:row(1).upstream_status)
  end)

  it("may come before the body of its request has been taken", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    local replica = fleet.replicas[1]
    -- A replica that looks at the head only, and reads no further.
    local early
    loop.forget(replica.listening)
    loop.watch(replica.listening, function()
      local conn = connection.accept(replica.listening)
      if not conn then return end
      conn.on_bytes = function(bytes)
        if not bytes:find("POST /v1/chat", 1, true) then
          conn:send("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n") -- a probe
          return
        end
        conn:pause()
        early = conn
        conn:send("HTTP/1.1 413 Too Large\r\nContent-Length: 5\r\n\r\nlarge")
      end
    end)
    client:begin(chat_request(("x"):rep(20000000)))
    local answer = client:finish(5)
    assert.equal(413, answer.status)
    assert.equal("large", answer:body())
    early:resume()
    loop.wait(function() return early.ended end, 2, "the router to let go") -- it has bytes to send
    local row = fleet:row(1)
    assert.equal("failed", row.outcome)
    assert.equal(413, row.status)
  end)

  it("without a length ends with its connection, for the client too", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    exchange:send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\none ")
    loop.sleep(0.02)
    exchange:send("two")
    exchange:close()
    local answer = client:finish(2)
    assert.equal("one two", answer:body())
    assert.equal("close", answer:header("connection"))
    assert.equal("fin", client:wait_end(1))
    assert.equal("success", fleet:row(1).outcome)
  end)

  it("without a length that is reset is no whole answer", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    exchange:send("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\none ")
    client:wait_body(4)
    exchange:reset()
    assert.equal("reset", client:wait_end(1))
    assert.equal("lost_mid_stream", fleet:row(1).error)
  end)

  it("of HTTP/1.0 is passed on as one of HTTP/1.1, and its connection not used again", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    for _ = 1, 2 do
      client:begin(chat_request("Hello"))
      fleet.replicas[1]:take():send("HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}")
      local answer = client:finish(2)
      assert.equal(1, answer.version)
      assert.equal("{}", answer:body())
    end
    local first, second = unpack(fleet.replicas[1].exchanges)
    assert.is_true(first.connection ~= second.connection)
  end)

  it("is of no use to a client that has closed its sending half: it counts as gone", function()
    local fleet = Fleet.start()
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    client:half_close()
    assert.is_true(exchange:wait_gone(1, loop.now()) < 0.3)
    assert.equal("cancelled", fleet:row(1).outcome)
  end)
end)

describe("a request's headers", function()
  after_each(Fleet.finish)

  -- What the replica gets to see of a request with these.
  local function seen(fleet, headers, host)
    local request = chat_request("Hello", nil, headers)
    request.host = host
    assert.equal(200, fleet:request(request).status)
    return fleet.replicas[1]:take().request
  end

  it("have the replica's Host, or the client's with preserve_host", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local request = seen(fleet, nil, "api.example.org:443")
    assert.same({ fleet.replicas[1].name }, request:all("host"))
    assert.equal("api.example.org:443", request:header("x-forwarded-host"))
    assert.equal("http", request:header("x-forwarded-proto"))
    fleet = Fleet.start({ script = Replica.answers(), config = { preserve_host = true } })
    request = seen(fleet, nil, "api.example.org:443")
    assert.same({ "api.example.org:443" }, request:all("host"))
    assert.same({ "api.example.org:443" }, request:all("x-forwarded-host"))
    local client = fleet:connect() -- HTTP/1.0 needs none
    client:send("GET /x HTTP/1.0\r\n\r\n")
    client:expect()
    assert.equal(200, client:finish().status)
    assert.same({ fleet.replicas[1].name }, fleet.replicas[1]:take().request:all("host"))
  end)

  it("named by strip_headers stay here", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      strip_headers = { "x-secret", "Cookie" },
    } })
    local request = seen(fleet,
      { "X-Secret: 1", "cookie: a=b", "X-Secrets: 2", "X-Conversation-Id: c" })
    assert.is_nil(request:header("x-secret"))
    assert.is_nil(request:header("cookie"))
    assert.equal("2", request:header("x-secrets"))
    assert.equal("c", request:header("x-conversation-id"))
  end)

  it("do not make llama.cpp generate for a client that has left", function()
    local llama = "# TYPE llamacpp:requests_processing gauge\nllamacpp:requests_processing 0\n"
      .. "# TYPE llamacpp:prompt_tokens_total counter\nllamacpp:prompt_tokens_total 5\n"
    local fleet = Fleet.start({
      replicas = { { script = Replica.answers(), metrics = llama } },
      config = { scrape = { interval_ms = 50 } },
    })
    loop.wait(function()
      return not seen(fleet, { "X-Conversation-Id: c", "X-Other: d" }):header("x-conversation-id")
    end, 3, "the header to stay away")
    local row = fleet:rows(1)[1]
    assert.equal("x-conversation-id", row.session_source) -- for affinity it counts all the same
  end)
end)

-- A TCP connection over IPv6, as connection.lua makes them over IPv4.
local function connect6(port)
  local fd = assert(socket.socket(socket.AF_INET6, socket.SOCK_STREAM, 0))
  assert(socket.connect(fd, { family = socket.AF_INET6, addr = "::1", port = port }))
  return fd
end

local function ask6(port, text)
  local fd = connect6(port)
  socket.send(fd, text)
  local got = ""
  connection.prepare(fd)
  loop.wait(function()
    local bytes = socket.recv(fd, 65536)
    got = got .. (bytes or "")
    return got:find("\r\n\r\n", 1, true)
  end, 3, "an answer over IPv6")
  unistd.close(fd)
  return got
end

describe("IPv6", function()
  after_each(Fleet.finish)

  it("is listened on, alone or with IPv4, and a client's address is told as it is", function()
    local fleet = Fleet.start({ ready = false, script = Replica.answers(), config = {
      listen = { "127.0.0.1:0", "[::1]:0", "[::]:0" },
    } })
    fleet:wait_ready()
    local bound = {}
    for _, listener in ipairs(fleet:admin("/admin/status").listeners) do
      bound[#bound + 1] = listener.address
    end
    assert.is_truthy(bound[2]:find("^%[::1%]:%d+$"), bound[2])
    local text = http.text(chat_request("Hello", nil, { "Connection: close" }))
    assert.is_truthy(ask6(tonumber(bound[2]:match("%d+$")), text):find("HTTP/1.1 200", 1, true))
    assert.equal("::1", fleet.replicas[1]:take().request:header("x-forwarded-for"))
    local both = tonumber(bound[3]:match("%d+$"))
    assert.is_truthy(ask6(both, text):find("HTTP/1.1 200", 1, true))
    assert.equal("::1", fleet.replicas[1]:take().request:header("x-forwarded-for"))
    assert.equal(200, http.request("127.0.0.1:" .. both, chat_request("Hello")).status)
    assert.equal("127.0.0.1", fleet.replicas[1]:take().request:header("x-forwarded-for"))
  end)

  it("leads to replicas, too", function()
    local other = Fleet.start({ script = Replica.answers(), config = {
      listen = { "127.0.0.1:0", "[::1]:0" },
    } })
    local address = other:admin("/admin/status").listeners[2].address
    local fleet = Fleet.start({ replicas = { "http://" .. address }, config = {
      health = { path = "/healthz" },
    } })
    local answer = fleet:chat("Hello")
    assert.equal(200, answer.status)
    assert.same({ address }, answer:all("x-kvroute-replica")) -- of this router, not of the other
    assert.equal(address, other.replicas[1]:take().request:header("x-forwarded-host"))
  end)
end)

describe("a replica given by name", function()
  after_each(Fleet.finish)

  it("is looked up at the start, and again when it cannot be reached", function()
    -- In capitals it goes through the system's resolver, which may say ::1 before 127.0.0.1.
    local replica = Replica.start({ script = Replica.answers() })
    local name = "LOCALHOST:" .. replica.port
    local fleet = Fleet.start({ replicas = { "http://" .. name } })
    local answer = fleet:chat("Hello")
    assert.equal(200, answer.status)
    assert.equal(name, answer:header("x-kvroute-replica"))
    assert.equal(name, replica:take().request:header("host"))
  end)

  it("may be added while the router runs, whether it leads anywhere or not", function()
    local replica = Replica.start({ script = Replica.answers() })
    local fleet = Fleet.start({ script = Replica.answers() })
    local name = "LOCALHOST:" .. replica.port
    fleet:admin("/admin/replicas", { url = "http://" .. name })
    fleet:admin("/admin/replicas", { url = "http://nowhere.invalid:8000" })
    loop.wait(function() return fleet:replica_state(name).operational == "up" end, 5, "it to be up")
    assert.equal("down", fleet:replica_state("nowhere.invalid:8000").operational)
    loop.wait(function()
      local page = fleet:metrics_page()
      return tonumber(page:match("kvroute_name_lookup_failures_total (%d+)")) > 0
    end, 10, "a failed look-up")
    fleet:admin("/admin/replicas/remove", { replica = "nowhere.invalid:8000" })
  end)
end)
