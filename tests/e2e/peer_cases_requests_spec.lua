-- Numbered cases, after public reports on other routers: what of a request reaches the engine, all
-- of it and nothing else, up to which size.
local cjson = require("cjson")
local check = require("e2e.support.check")
local connection = require("e2e.support.connection")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local unistd = require("posix.unistd")

local MB = 1000000

local function header(entry, name)
  for _, each in ipairs(entry.headers) do
    if each[1]:lower() == name then return each[2] end
  end
end

describe("a request", function()
  after_each(Peers.finish)

  it("B19 keeps the fields that the router does not know, byte for byte", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local body = '{"model":"test-model" , "chat_template_kwargs":{"enable_thinking":false},\n'
      .. '"return_token_ids":true,"cache_salt":"s\\u00e4lt\\/","nvext":{"a":[1,{"b":null}]},'
      .. '"seed":9223372036854775809,"huge":1e400,"tiny":-0.0e-999,"x":1,"x":2,\t"y":1.50,'
      .. '"messages":[{"role":"user","content":"\\ud83d\\ude00 \\uD834\\uDD1E",'
      .. '"extra_content":{"vendor":[true,false]}}]}\r\n '
    assert.equal(200, fleet:request({ path = "/v1/chat/completions", body = body }).status)
    assert.equal(200, fleet:request({
      path = "/v1/chat/completions", chunks = { body:sub(1, 50), body:sub(51, 52), body:sub(53) },
    }).status)
    local replica = fleet.replicas[1]
    for _ = 1, 2 do
      local exchange = replica:take()
      check.same_bytes(body, exchange.body)
      assert.equal(Emulator.xxh64(body), Emulator.xxh64(exchange.body))
    end
  end)

  it("B21 may have a prompt of token ids, of any shape", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers(), config = {
      index = { block_bytes = 16 },
    } })
    local function ids(from, count)
      local list = {}
      for i = 1, count do list[i] = from + i end
      return list
    end
    local client, asked = fleet:connect(), 0
    local function ask(prompt)
      local body = prompt == "" and '{"model":"test-model","prompt":""}'
        or cjson.encode({ model = "test-model", prompt = prompt }):gsub("{}", "[]")
      assert.equal(200, client:request({ path = "/v1/completions", body = body }).status)
      check.same_bytes(body, Replica.take_any(fleet.replicas).body)
      asked = asked + 1
      return fleet:row(asked)
    end
    ask("a text")
    ask({ "two", "texts" })
    ask("")
    ask({})
    ask({ {} })
    ask({ {}, ids(5, 3) })
    local first = ask(ids(1000, 200))
    assert.equal(0, first.match_blocks)
    for _ = 1, 3 do
      local again = ask(ids(1000, 200))
      assert.equal(first.replica, again.replica)
      assert.equal(first.blocks, again.match_blocks)
    end
    local longer = ask(ids(1000, 300))
    assert.equal(first.replica, longer.replica)
    assert.is_true(longer.match_blocks >= first.blocks - 1)
    assert.equal(0, ask(ids(1001, 200)).match_blocks)
    local lists = ask({ ids(1, 100), ids(7, 100) })
    assert.equal(lists.replica, ask({ ids(1, 100), ids(7, 100) }).replica)
  end)

  it("B33 names the replica as its host, as probes do, and the client's apart", function()
    local fd, port = connection.listen(0)
    unistd.close(fd)
    local authority = "localhost:" .. port
    local emulator = Emulator.start({ args = {
      "--served-model-name", "test-model", "--time-scale", "50", "--port", port,
      "--check-host", authority,
    } })
    local fleet = Fleet.start({ replicas = { "http://" .. authority } })
    local request = Fleet.chat_request("Hello")
    request.host = "api.example.test:8443"
    local answer = fleet:request(request)
    assert.equal(200, answer.status)
    assert.equal(authority, answer:header("x-kvroute-replica"))
    loop.wait(function() return fleet:replica_state(authority).engine ~= cjson.null end, 2)
    local targets = {}
    for _, entry in ipairs(emulator:log(1)) do
      assert.equal(authority, header(entry, "host"), entry.target)
      targets[entry.target] = entry
    end
    for _, target in ipairs({ "/health", "/metrics", "/v1/models" }) do
      assert.is_truthy(targets[target], target)
    end
    local forwarded = targets["/v1/chat/completions"]
    assert.equal("api.example.test:8443", header(forwarded, "x-forwarded-host"))
    -- Unless it is to be the client's; a probe has no client.
    local preserving = Fleet.start({
      script = Replica.answers(), config = { preserve_host = true },
    })
    assert.equal(200, preserving:request(request).status)
    assert.equal("api.example.test:8443",
      preserving.replicas[1]:take().request:header("host"))
  end)

  it("B45 keeps its query, whatever is in it", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local replica = fleet.replicas[1]
    for _, path in ipairs({ "/slots/0", "/v1/chat/completions", "/v1/files/x", "/" }) do
      for _, query in ipairs({
        "?action=save", "?a=1&b=%2F&c", "?", "??a=?", "?a=b=c&&", "?x=%00%zz%", "?fragment-less",
        "?" .. ("q=0123456789&"):rep(630), -- 8 KB
      }) do
        local request = path:find("chat", 1, true) and Fleet.chat_request("Hello")
          or { method = "POST", body = "{}" }
        request.path = path .. query
        assert.equal(200, fleet:request(request).status)
        assert.equal(request.path, replica:take().request.target)
      end
    end
  end)

  it("B47 may be as large as the limit says, at the price of its bytes", function()
    local limit = 32 * MB
    local fleet = Fleet.start({ config = { limits = { body_bytes = limit } } })
    local replica = fleet.replicas[1]
    local function image(bytes)
      local head = '{"model":"test-model","messages":[{"role":"user","content":[{'
        .. '"type":"image_url","image_url":{"url":"data:image/png;base64,'
      local tail = '"}}]}]}'
      return head .. ("iVBORw0K"):rep(math.ceil(bytes / 8)):sub(1, bytes - #head - #tail) .. tail
    end
    local before = fleet.router:rss()
    for i, bytes in ipairs({ MB, 8 * MB, limit }) do
      local body = image(bytes)
      local client = fleet:connect()
      client:begin({ path = "/v1/chat/completions", body = body })
      local exchange = replica:take(20)
      assert.is_true(body == exchange.body)
      local held = Peers.grown(fleet, before) -- kept for a second try
      assert.is_true(held < 1.2 * bytes + 4 * MB, ("%d bytes for %d"):format(held, bytes))
      exchange:reply()
      assert.equal(200, client:finish().status)
      client:close()
      assert.equal(bytes, fleet:row(i).bytes_in)
    end

    local asked = 3
    -- Over it: told at once, or when it is; the client can read that although it goes on sending.
    local piece = ("x"):rep(MB)
    local function oversized(head, each)
      local client = fleet:connect()
      local answer = client:expect()
      client:send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\n" .. head .. "\r\n\r\n")
      for _ = 1, 64 do
        client:send(each)
        loop.wait(function()
          return client.connection.out_bytes == 0 or client.connection.ended
        end, 5)
      end
      client:finish(5)
      check.api_error(answer, 413, "body_too_large")
      assert.equal("close", answer:header("connection"))
      assert.equal("fin", client:wait_end(5))
      asked = asked + 1
      local row = fleet:row(asked)
      assert.same({ 413, "body_too_large", "dropped" }, { row.status, row.error, row.outcome })
    end
    before = fleet.router:rss()
    oversized("Content-Length: " .. 64 * MB, piece)
    oversized("Transfer-Encoding: chunked", ("%x\r\n%s\r\n"):format(#piece, piece))
    -- A chunked body grows into a buffer that was half as large.
    assert.is_true(Peers.grown(fleet, before) < 1.7 * limit)
    assert.equal(3, replica:count())
    assert.equal(2, fleet:admin("/admin/status").listeners[1].refused_requests)
  end)
end)

