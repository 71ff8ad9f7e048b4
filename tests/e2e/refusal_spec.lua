-- What the ingress refuses by itself, how it says so, and that no replica hears of it.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

describe("a request that is refused", function()
  after_each(Fleet.finish)

  -- Sends bytes on a connection of its own; what came back, which must end the connection.
  local function refused(fleet, bytes)
    local client = fleet:connect()
    client:send(bytes)
    local answer = client:expect()
    client:finish(2)
    assert.equal("close", answer:header("connection"))
    client:wait_end(3)
    return answer
  end

  local function start(config)
    return Fleet.start({ script = Replica.answers(), config = config })
  end

  local post = "POST /x HTTP/1.1\r\nHost: x\r\n"
  local chunked = post .. "Transfer-Encoding: chunked\r\n\r\n"

  it("for its size: 413, whether it says so or just grows", function()
    local fleet = start({ limits = { body_bytes = 4096 } })
    check.api_error(refused(fleet, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      .. "Content-Length: 4097\r\n\r\n"), 413, "body_too_large")
    check.api_error(refused(fleet, chunked .. ("400\r\n" .. ("x"):rep(1024) .. "\r\n"):rep(5)),
      413, "body_too_large")
    local fits = Fleet.chat(("x"):rep(4096 - #Fleet.chat("")))
    assert.equal(4096, #fits)
    assert.equal(200, fleet:request({ path = "/v1/chat/completions", body = fits }).status)
    assert.equal(1, fleet.replicas[1]:count())
  end)

  it("for its head: 431", function()
    local fleet = start({ limits = { header_bytes = 4096 } })
    local head = "GET /x HTTP/1.1\r\nHost: x\r\n"
    for bytes, code in pairs({
      ["X-Long: " .. ("x"):rep(5000) .. "\r\n\r\n"] = "headers_too_large",
      ["X-Endless: " .. ("x"):rep(5000)] = "headers_too_large",
      [("X: y\r\n"):rep(150) .. "\r\n"] = "headers_too_many",
    }) do
      check.api_error(refused(fleet, head .. bytes), 431, code)
    end
    assert.equal(0, fleet.replicas[1]:count())
  end)

  local malformed = {
    ["no request line"] = "HELLO\r\n\r\n",
    ["another protocol"] = "GET /x HTTP/2.0\r\nHost: x\r\n\r\n",
    ["a bare line feed"] = "GET /x HTTP/1.1\nHost: x\n\n",
    ["a bare carriage return"] = "GET /x HTTP/1.1\r\nHost: x\r\nA: b\rC: d\r\n\r\n",
    ["a folded header"] = "GET /x HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
    ["a blank before the colon"] = "GET /x HTTP/1.1\r\nHost: x\r\nContent-Length : 3\r\n\r\nabc",
    ["a zero byte"] = "GET /x HTTP/1.1\r\nHost: x\r\nA: \0\r\n\r\n",
    ["a fragment in the target"] = "GET /x#y HTTP/1.1\r\nHost: x\r\n\r\n",
    ["a tunnel"] = "CONNECT example.test:443 HTTP/1.1\r\nHost: x\r\n\r\n",
    ["no host"] = "GET /x HTTP/1.1\r\n\r\n",
    ["two hosts"] = "GET /x HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
    ["length and chunks"] = post .. "Content-Length: 3\r\n"
      .. "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    ["two lengths"] = post .. "Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
    ["a length that is none"] = post .. "Content-Length: +3\r\n\r\nabc",
    ["another coding"] = post .. "Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
    ["a chunk size that is none"] = chunked .. "0x3\r\nabc\r\n",
    ["a chunk that is longer than it says"] = chunked .. "3\r\nabcd\r\n0\r\n\r\n",
  }
  it("for its form: 400, and nothing of it is forwarded", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    for what, bytes in pairs(malformed) do
      local ok, why = pcall(function()
        local answer = refused(fleet, bytes)
        check.api_error(answer, answer.status, "invalid_http")
        assert.equal(400, answer.status)
      end)
      assert.is_true(ok, what .. ": " .. tostring(why))
    end
    assert.equal(0, fleet.replicas[1]:count())
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("for its JSON: 400, and the connection goes on", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local client = fleet:connect()
    local bodies = { '{"model": "test-model", "messages": [', "", "[]x", "nul", '{"a":1}}' }
    for i, body in ipairs(bodies) do
      local answer = client:request({ path = "/v1/chat/completions", body = body })
      check.api_error(answer, 400, "invalid_json")
      assert.is_nil(answer:header("connection"), "case " .. i)
    end
    assert.equal(0, fleet.replicas[1]:count())
    assert.equal(200, client:request(chat_request("Hello")).status)
  end)

  it("for what others do: 503 while limits.requests are open", function()
    local fleet = start({ limits = { requests = 1 } })
    fleet.replicas[1].script = nil
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    local exchange = fleet.replicas[1]:take()
    local answer = fleet:chat("Hello")
    check.api_error(answer, 503, "too_many_requests")
    assert.is_truthy(tonumber(answer:header("retry-after")))
    exchange:reply()
    assert.equal(200, client:finish().status)
  end)

  it("for what others hold: 503 while limits.bodies_total_bytes are reached", function()
    local fleet = start({ limits = { body_bytes = 100000, bodies_total_bytes = 150000 } })
    local holding = fleet:connect()
    holding:send("POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n{")
    loop.wait(function() return fleet:admin("/admin/status").listeners[1].held_bytes > 99999 end)
    check.api_error(refused(fleet, "POST /x HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\n\r\n{"),
      503, "bodies_total")
    holding:close()
    loop.wait(function() return fleet:admin("/admin/status").listeners[1].held_bytes == 0 end)
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("as a connection, over limits.connections", function()
    local fleet = start({ limits = { connections = 3 } })
    local clients = {}
    for i = 1, 3 do
      clients[i] = fleet:connect()
      assert.equal(200, clients[i]:request(chat_request("Hello")).status)
    end
    assert.is_truthy(fleet:connect():wait_end(1))
    clients[1]:close()
    loop.wait(function() return fleet:admin("/admin/status").listeners[1].open == 2 end)
    assert.equal(200, fleet:chat("Hello").status)
    assert.equal(1, fleet:admin("/admin/status").listeners[1].refused)
  end)

  it("for coming too slowly: 408", function()
    local fleet = Fleet.start({ config = { timeouts = { client_body_ms = 200 } } })
    check.api_error(refused(fleet, "POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n"
      .. 'Content-Length: 100\r\n\r\n{"model"'), 408, "request_timeout")
    assert.equal(0, fleet.replicas[1]:count())
  end)
end)
