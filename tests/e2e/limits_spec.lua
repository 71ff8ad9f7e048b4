-- Everything that can grow has a limit and a counter for reaching it: what is held of requests,
-- requests, connections, and how long a client may take.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

local one_at_a_time = { { settings = { capacity = 1 } } }

describe("what is held of requests", function()
  after_each(Fleet.finish)

  local function refused(fleet, bytes, status, code)
    local client = fleet:connect()
    client:send(bytes)
    client:expect()
    local answer = client:finish(3)
    check.api_error(answer, status, code)
    assert.equal("close", answer:header("connection"))
    client:wait_end(3)
  end

  it("that is large leaves no memory behind", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = { policy = "round_robin" } })
    local before = fleet.router:rss()
    local chunks = { '{"model":"test-model","messages":[{"role":"user","content":"' }
    for i = 2, 480 do chunks[i] = ("word "):rep(13107) end
    chunks[481] = '"}]}'
    local client = fleet:connect()
    client:begin({ path = "/v1/chat/completions", chunks = chunks })
    assert.equal(200, client:finish(20).status)
    loop.wait(function() return Peers.grown(fleet, before) < 8 * 2 ^ 20 end, 3, "its memory")
  end)

  it("is bounded in header lines, and each refusal is counted under its setting", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      limits = { header_count = 12, header_bytes = 2048, body_bytes = 2000 },
    } })
    local head = "GET /x HTTP/1.1\r\nHost: x\r\n"
    refused(fleet, head .. ("X: y\r\n"):rep(12) .. "\r\n", 431, "headers_too_many")
    assert.equal(200, (function()
      local client = fleet:connect()
      client:send(head .. ("X: y\r\n"):rep(11) .. "\r\n")
      client:expect()
      return client:finish().status
    end)())
    refused(fleet, head .. "X: " .. ("y"):rep(2100) .. "\r\n\r\n", 431, "headers_too_large")
    refused(fleet, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: large-1\r\n"
      .. "Content-Length: 2001\r\n\r\n", 413, "body_too_large")
    local large = http.request(fleet.address,
      { path = "/x", headers = { "X: " .. ("y"):rep(2100) } })
    assert.equal("the head is over limits.header_bytes", large:json().error.message)
    -- The admin interface has limits of its own, which are no settings.
    large = http.request(fleet.admin_address,
      { path = "/admin", headers = { "X: " .. ("y"):rep(17000) } })
    assert.equal(431, large.status)
    assert.equal("the head is over 16384 bytes", large:json().error.message)
    large = http.request(fleet.admin_address, { path = "/admin/explain", body = ("x"):rep(70000) })
    assert.equal(413, large.status)
    assert.equal("the body is over 67536 bytes", large:json().error.message)
    assert.equal(1, fleet:hits("limits.header_count"))
    assert.equal(2, fleet:hits("limits.header_bytes"))
    assert.equal(1, fleet:hits("limits.body_bytes"))
    -- Whatever has a head that could be read has a row.
    local rows = fleet:rows(2)
    assert.equal(2, #rows)
    assert.equal("large-1", rows[2].request_id)
    assert.equal(413, rows[2].status)
    assert.equal("body_too_large", rows[2].error)
    assert.equal("dropped", rows[2].outcome)
    assert.equal("chat", rows[2].endpoint)
  end)

  it("is bounded in bytes over all clients, also in chunks, also while they wait", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, config = {
      limits = { bodies_total_bytes = 1000000 }, queue = { max = 8 },
    } })
    fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    local waits = fleet:begin_chat(("x"):rep(300000))
    fleet:wait_waiting(1)
    local head = "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
    refused(fleet, head .. "Content-Length: 600000\r\n\r\n", 503, "bodies_total")
    refused(fleet, head .. "Transfer-Encoding: chunked\r\n\r\n"
      .. ("2000\r\n" .. ("x"):rep(8192) .. "\r\n"):rep(100), 503, "bodies_total")
    assert.equal(2, fleet:hits("limits.bodies_total_bytes"))
    exchange:reply()
    exchange = fleet.replicas[1]:take()
    exchange:reply()
    assert.equal(200, waits:finish().status)
    -- What has been sent on is held no more.
    local client = fleet:begin_chat(("x"):rep(300000))
    fleet.replicas[1]:take():reply()
    assert.equal(200, client:finish().status)
  end)
end)

describe("requests open at once", function()
  after_each(Fleet.finish)

  it("are bounded by limits.requests, and the one too many has a row", function()
    local fleet = Fleet.start({ config = { limits = { requests = 2 } } })
    fleet:begin_chat()
    fleet:begin_chat()
    local a, b = fleet.replicas[1]:take(), fleet.replicas[1]:take()
    check.api_error(fleet:chat("Hello"), 503, "too_many_requests")
    assert.equal("too_many_requests", fleet:row(1).error)
    assert.equal(1, fleet:hits("limits.requests"))
    a:reply()
    b:reply()
    fleet:rows(3)
  end)
end)

describe("connections", function()
  after_each(Fleet.finish)

  it("over limits.connections: the one idle longest makes room, none that works", function()
    local fleet = Fleet.start({ config = { limits = { connections = 3 } } })
    local idle, busy = fleet:connect(), {}
    assert.equal(200, idle:request({ path = "/healthz" }).status)
    busy[1] = fleet:begin_chat()
    busy[2] = fleet:begin_chat()
    local a, b = fleet.replicas[1]:take(), fleet.replicas[1]:take()
    local refused = fleet:connect() -- at once: nobody has been idle for long
    refused:wait_end(1)
    loop.sleep(1.1)
    busy[3] = fleet:begin_chat()
    idle:wait_end(1)
    local c = fleet.replicas[1]:take()
    fleet:connect():wait_end(1)
    for _, exchange in ipairs({ a, b, c }) do exchange:reply() end
    for _, client in ipairs(busy) do assert.equal(200, client:finish().status) end
    assert.equal(3, fleet:hits("limits.connections"))
    assert.equal(1, (fleet:metric("kvroute_client_connections_displaced_total") or 0))
    assert.equal(2,
      fleet:metric('kvroute_client_connections_refused_total{listener="ingress"}'))
  end)

  it("never take the last descriptors: replicas can still be reached", function()
    local fleet = Fleet.start({ script = Replica.answers(), descriptors = 96 })
    local clients = {}
    for i = 1, 120 do clients[i] = fleet:connect() end
    loop.wait(function() return fleet:hits("descriptors") >= 20 end, 3, "refused connections")
    local served = 0
    for _, client in ipairs(clients) do
      if not client.connection.ended then
        assert.equal(200, client:request(chat_request("Hello")).status)
        served = served + 1
      end
    end
    assert.is_true(served >= 30 and served <= 96, served .. " served")
  end)
end)

describe("a client that is slow", function()
  after_each(Fleet.finish)

  it("to send its head: 408, however steadily it trickles", function()
    local fleet = Fleet.start({ config = { timeouts = { client_body_ms = 300 } } })
    local client = fleet:connect()
    local began = loop.now()
    client:send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n")
    local answer = client:expect()
    repeat
      client:send("X-A: b\r\n")
      loop.sleep(0.02)
    until answer.done or loop.now() - began > 3
    check.api_error(answer, 408, "request_timeout")
    assert.is_true(loop.now() - began < 1.2)
    assert.equal("close", answer:header("connection"))
    assert.equal(1, fleet:hits("timeouts.client_body_ms"))
  end)

  it("to send its body: 408 and the end, also on a connection that has served before", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      timeouts = { client_body_ms = 300 },
    } })
    local client = fleet:connect()
    assert.equal(200, client:request(chat_request("Hello")).status)
    client:send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nX-Request-Id: slow-1\r\n"
      .. 'Content-Length: 100000\r\n\r\n{"model"')
    local answer = client:expect()
    client:finish(2)
    check.api_error(answer, 408, "request_timeout")
    assert.equal("close", answer:header("connection"))
    client:wait_end(3)
    local row = fleet:row(2)
    assert.equal("slow-1", row.request_id)
    assert.equal(408, row.status)
  end)

  it("is not one whose large body comes steadily", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      timeouts = { client_body_ms = 200 },
    } })
    local client = fleet:connect()
    local text = http.text(chat_request(("x"):rep(200000)))
    for at = 1, #text, 10000 do
      client:send(text:sub(at, at + 9999))
      loop.sleep(0.05) -- one second in all
    end
    client:expect()
    assert.equal(200, client:finish().status)
  end)

  it("is not one that ends a line behind its request, in two pieces", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      timeouts = { client_body_ms = 300 },
    } })
    local client = fleet:connect()
    assert.equal(200, client:request(chat_request("Hello")).status)
    local function held() return fleet:admin("/admin/status").listeners[1].held_bytes end
    client:send("\r")
    loop.wait(function() return held() > 0 end, 2, "the first piece to be read")
    client:send("\n")
    loop.wait(function() return held() == 0 end, 2, "the client to be idle")
    loop.sleep(0.6)
    assert.equal(200, client:request(chat_request("Hello")).status)
    assert.equal(0, fleet:hits("timeouts.client_body_ms"))
  end)

  it("to take its answer: cut after timeouts.client_stall_ms, and the replica let go", function()
    local fleet = Fleet.start({ config = { timeouts = { client_stall_ms = 300 } } })
    local client = fleet:connect(4096)
    client:begin(chat_request("Hello", { stream = true }))
    client:pause()
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    exchange:chunk(("x"):rep(8000000))
    exchange:wait_gone(3)
    assert.equal("cancelled", fleet:row(1).outcome)
    assert.equal(1, fleet:hits("timeouts.client_stall_ms"))
    assert.is_true(fleet:hits("limits.stream_buffer_bytes") > 0)
  end)

  it("between requests is closed after timeouts.client_idle_ms", function()
    local fleet = Fleet.start({ config = { timeouts = { client_idle_ms = 300 } } })
    local client = fleet:connect()
    assert.equal(200, client:request({ path = "/healthz" }).status)
    local began = loop.now()
    assert.equal("fin", client:wait_end(2))
    assert.is_true(loop.now() - began >= 0.25)
    assert.equal(1, fleet:hits("timeouts.client_idle_ms"))
  end)
end)

describe("the configuration", function()
  it("names a limit that cannot be", function()
    local folder = os.tmpname()
    Fleet.write(folder, "limits.header_count = 101\n")
    local child = process.start({ Fleet.binary, "serve", "--config", folder },
      { out = folder .. ".out", err = folder .. ".err" })
    local how, code = child:wait(5)
    assert.equal("exited", how)
    assert.is_true(code > 0)
    local why = "limits.header_count: must be an integer between 8 and 100"
    assert.is_truthy(child:stderr():find(why, 1, true))
    for _, suffix in ipairs({ "", ".out", ".err" }) do os.remove(folder .. suffix) end
  end)
end)
