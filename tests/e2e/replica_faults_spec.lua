-- The faults of the emulated replica: where each happens, to the byte, and what it leaves behind.
local cjson = require("cjson")
local Emulator = require("e2e.support.emulator")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local sse = require("e2e.support.sse")

local emulator

local function start(...)
  emulator = Emulator.start({ args = { "--served-model-name", "m", ... } })
end

local function connect()
  return http.connect(emulator.addresses[1])
end

local function chat(more)
  local body = { model = "m", max_tokens = 6, messages = { { role = "user", content = "hello" } } }
  for key, value in pairs(more or {}) do body[key] = value end
  return body
end

-- A streamed chat under a fault of its own.
local function begin(fault, more)
  local client = connect()
  local body = chat(more)
  body.stream = body.stream == nil and true or body.stream
  client:begin({ path = "/v1/chat/completions", body = body,
    headers = { "x-kvroute-fault: " .. fault } })
  return client
end

-- How many tokens a body holds.
local function tokens(answer)
  return select(2, answer:body():gsub('"token_ids":null', ""))
end

-- A body without what differs from one time to the next.
local function timeless(body)
  return (body:gsub('"id":"[^"]*"', ""):gsub('"created":%d+', ""))
end

local function outcome()
  return emulator:log(1)[1].outcome
end

describe("a fault of the emulated replica", function()
  after_each(Emulator.finish)

  it("stalls before anything, after the head, or after some tokens", function()
    start()
    local client = begin("stall")
    assert.is_falsy(loop.try(function() return client.connection.received > 0 end, 0.1))
    client = begin("stall;at=body")
    client:wait(function() return client.reading.headers end)
    assert.is_falsy(loop.try(function() return client.reading.body_bytes > 0 end, 0.1))
    client = begin("stall;after=3")
    client:wait(function() return tokens(client.reading) == 3 end)
    assert.is_falsy(loop.try(function() return tokens(client.reading) > 3 end, 0.1))
    for _, each in ipairs(emulator:log(1)) do assert.equal("open", each.outcome) end
    client:close()
    emulator:wait_log(function(entry) return entry.outcome == "aborted" and entry.seq == 3 end)
  end)

  it("stalls for a time and goes on", function()
    start()
    local client = begin("stall;after=2;ms=80")
    local answer = client:finish()
    assert.equal(9, #sse.events(answer:body())) -- role, 6 tokens, finish, [DONE]
    local widest = 0
    for i = 2, #answer.pieces do
      widest = math.max(widest, answer.pieces[i].at - answer.pieces[i - 1].at)
    end
    assert.is_true(widest > 0.07 and widest < 0.2, tostring(widest))
  end)

  it("resets or closes in the middle", function()
    start()
    local client = begin("reset;after=3")
    assert.equal("reset", client:wait_end())
    assert.equal(3, tokens(client.reading))
    assert.equal("broken", outcome())
    client = begin("close;after=2")
    assert.equal("fin", client:wait_end())
    assert.equal(2, tokens(client.reading))
    assert.is_false(client.reading.done)
    client = begin("reset;at=head")
    assert.equal("reset", client:wait_end())
    assert.equal(0, client.connection.received)
    client = begin("reset;at=body;ms=30")
    assert.equal("reset", client:wait_end())
    assert.equal(200, client.reading.status)
    assert.equal(0, client.reading.body_bytes)
    client = begin("close;bytes=100")
    assert.equal("fin", client:wait_end())
    assert.equal(100, client.reading.body_bytes)
    -- A whole answer breaks in the middle of its body.
    client = begin("close;after=1", { stream = false })
    assert.equal("fin", client:wait_end())
    assert.is_true(client.reading.body_bytes > 0 and not client.reading.done)
    emulator:wait_idle(0.5)
  end)

  it("breaks inside a character, a chunk's size, a name, a line end, the last event", function()
    start("--alphabet", "cjk")
    local function broken(fault)
      local client = begin(fault)
      client:wait_end()
      return client.reading, client.reading:bytes() .. client.reading.pending
    end
    local answer = broken("reset;after=2;in=utf8")
    local last = answer:body():byte(-1)
    assert.is_true(last >= 0xe0 and last < 0xf0) -- the first byte of three
    assert.equal(3 - 1, tokens(answer))
    local _, bytes = broken("close;after=2;in=size")
    assert.is_truthy(bytes:match("\r\n%x$"))
    answer = broken("close;after=2;in=data")
    assert.equal("\n\ndat", answer:body():sub(-5))
    answer = broken("close;after=2;in=newline")
    assert.equal("}\n", answer:body():sub(-2))
    answer = broken("close;in=done")
    assert.equal("data: [DO", answer:body():sub(-9))
  end)

  it("cuts events in two writes without harming them", function()
    start("--alphabet", "emoji")
    local whole = timeless(begin("none"):finish():body())
    for _, inside in ipairs({ "utf8", "size", "data", "newline", "done" }) do
      local client = begin("cut;every=1;ms=3;in=" .. inside)
      local answer = client:finish()
      assert.equal(whole, timeless(answer:body()))
    end
    local client = begin("cut;every=1;ms=5;in=utf8")
    local answer = client:finish()
    local cut = 0
    for _, piece in ipairs(answer.pieces) do
      if piece.text:byte(-1) == 0xf0 then cut = cut + 1 end
    end
    assert.equal(6, cut)
  end)

  it("drips", function()
    start()
    local whole = timeless(begin("none", { max_tokens = 1 }):finish():body())
    local client = begin("drip;bytes=16;ms=0.5", { max_tokens = 1 })
    local answer = client:finish()
    assert.equal(whole, timeless(answer:body()))
    assert.is_true(#answer.pieces > 25, #answer.pieces .. " pieces")
    client = begin("drip;at=body", { max_tokens = 1 }) -- one byte a write, as fast as it goes
    assert.equal(whole, timeless(client:finish():body()))
  end)

  it("sends an engine's error event", function()
    start()
    local events = sse.events(begin("error;after=2"):finish():body())
    assert.equal(500, events[#events - 1].json.error.code)
    assert.equal("InternalServerError", events[#events - 1].json.error.type)
    assert.equal("[DONE]", events[#events].data)
    assert.equal(1 + 2 + 2, #events)
    local answer = begin("error", { stream = false }):finish()
    assert.equal(500, answer.status)
    emulator:wait_idle(0.5)
  end)

  it("answers with a status, to those that are meant", function()
    start("--fault", "status;code=400;marker=XYZZY;times=2")
    local function ask(content)
      return http.request(emulator.addresses[1], { path = "/v1/chat/completions",
        body = chat({ messages = { { role = "user", content = content } } }) })
    end
    assert.equal(200, ask("hello").status)
    assert.equal(400, ask("say XYZZY").status)
    assert.equal(400, ask("say XYZZY").status)
    assert.equal(200, ask("say XYZZY").status)
    emulator:fault("status;code=503;retry_after=7;ms=60", 1)
    local before = loop.now()
    local answer = ask("hello")
    assert.equal(503, answer.status)
    assert.equal("7", answer:header("retry-after"))
    assert.is_true(loop.now() - before > 0.05)
    assert.equal(503, answer:json().error.code)
emulator:heal(1)
    assert.equal(200, ask("hello").status)
  end)

  it("makes probes slow or fail, and leaves other paths alone", function()
    start()
    local function health()
      return http.request(emulator.addresses[1], { path = "/health" })
    end
    emulator:fault({ kind = "status", code = 503, path = "/health" }, 1)
    assert.equal(503, health().status)
    assert.equal(200, begin("none"):finish().status)
    emulator:heal(1)
    emulator:fault({ { kind = "stall", ms = 70, path = "/health" } }, 1)
    local before = loop.now()
    assert.equal(200, health().status)
    assert.is_true(loop.now() - before > 0.06)
    assert.equal("stall;ms=70;path=/health\n", emulator:order("GET", "/fault", 1))
    emulator:heal(1)
    emulator:fault({ kind = "reset", path = "*" }, 1)
    local client = connect()
    client:begin({ path = "/version" })
    assert.equal("reset", client:wait_end())
  end)

  it("closes a connection when it is used again", function()
    start()
    for _, fault in ipairs({ "race", "race;orderly=1" }) do
      emulator:fault(fault, 1)
      local client = connect()
      local request = { path = "/v1/completions", body = { prompt = "x" } }
      assert.equal(200, client:request(request).status)
      client:begin(request)
      assert.equal(fault == "race" and "reset" or "fin", client:wait_end())
      assert.is_nil(client.reading.headers)
      emulator:heal(1)
    end
  end)

  it("closes idle connections after a time, or after so many requests", function()
    start("--requests-per-connection", "2", "--keep-alive", "0.3")
    local client = connect()
    client:request({ path = "/health" })
    assert.is_falsy(loop.try(function() return client.connection.ended end, 0.1))
    assert.equal(200, client:request({ path = "/health" }).status)
    assert.is_nil(client.reading:header("connection"))
    assert.equal("fin", client:wait_end(0.2))
    client = connect()
    client:request({ path = "/health" })
    local idle_since = loop.now()
    assert.equal("fin", client:wait_end(1))
    assert.is_true(loop.now() - idle_since > 0.25)
    emulator:fault("idle;ms=40", 1)
    client = connect()
    client:request({ path = "/health" })
    idle_since = loop.now()
    client:wait_end(1)
    local idle = loop.now() - idle_since
    assert.is_true(idle > 0.03 and idle < 0.1, tostring(idle))
  end)

  it("refuses connections for a time, or until it is healed", function()
    start()
    local address = emulator.addresses[1]
    local idle, busy = connect(), begin("stall;after=3;ms=150")
    idle:request({ path = "/health" })
    busy:wait_body(1)
    emulator:fault("refuse", 1)
    assert.has_error(function() http.connect(address) end)
    assert.equal("fin", idle:wait_end())
    assert.equal(200, busy:finish().status) -- what was under way ends well
    assert.is_false(emulator:replicas()[1].listening)
    emulator:heal(1)
    assert.equal(200, http.request(address, { path = "/health" }).status)
    for _ = 1, 3 do
      emulator:fault("refuse;ms=30", 1)
      assert.has_error(function() http.connect(address) end)
      loop.wait(function() return emulator:replicas()[1].listening end)
      assert.equal(200, http.request(address, { path = "/health" }).status)
    end
  end)

  it("dies and comes back with an empty cache", function()
    start("--prompt-tokens-details", "on")
    local address = emulator.addresses[1]
    local function ask()
      local body = { prompt = ("x"):rep(400), max_tokens = 1 }
      return http.request(address, { path = "/v1/completions", body = body }):json().usage
    end
    ask()
    assert.equal(96, ask().prompt_tokens_details.cached_tokens)
    local client = begin("none", { max_tokens = 10000 })
    client:wait_body(1)
    emulator:fault("restart;ms=80", 1)
    assert.equal("reset", client:wait_end(0.2))
    assert.has_error(function() http.connect(address) end)
    loop.wait(function() return emulator:replicas()[1].listening end)
    assert.equal(cjson.null, ask().prompt_tokens_details)
    assert.is_truthy(http.request(address, { path = "/metrics" }):body():find(
      'vllm:prompt_tokens_total{engine="0",model_name="m"} 100\n', 1, true))
    -- The engine alone: the server stays and says so.
    client = begin("none", { max_tokens = 10000 })
    client:wait_body(1)
    emulator:fault("restart;orderly=1;ms=80", 1)
    local events = sse.events(client:finish():body())
    assert.equal(500, events[#events - 1].json.error.code)
    assert.equal(503, http.request(address, { path = "/health" }).status)
    loop.wait(function() return http.request(address, { path = "/health" }).status == 200 end)
  end)

  it("sends much at full speed, no faster than it is read", function()
    start()
    local client = http.connect(emulator.addresses[1], 4096)
    client:begin({ path = "/v1/chat/completions", body = chat({ stream = true }),
      headers = { "x-kvroute-fault: huge;bytes=3000000" } })
    client:wait_body(1)
    client:pause()
    local before = emulator.process:rss()
    loop.sleep(0.1)
    assert.is_true(emulator.process:rss() - before < 1e6)
    client:resume()
    local answer = client:finish(10)
    assert.equal(3000000, answer.body_bytes)
    client = begin("huge;bytes=20000000;sized=1")
    answer = client:finish(10)
    assert.equal("20000000", answer:header("content-length"))
    assert.equal(20000000, answer.body_bytes)
  end)

  it("slows the engine down", function()
    start()
    local sum, count = 0, 0
    -- Mean time between tokens of one answer, by the engine's own clock.
    local function gap()
      begin("none", { stream = false, max_tokens = 10 }):finish()
      local page = http.request(emulator.addresses[1], { path = "/metrics" }):body()
      local function value(part)
        return tonumber(page:match("\nvllm:inter_token_latency_seconds_" .. part
          .. "{[^}]*} ([%d.e-]+)\n"))
      end
      local mean = (value("sum") - sum) / (value("count") - count)
      sum, count = value("sum"), value("count")
      return mean
    end
    local usual = gap()
    emulator:fault("slow;factor=5", 1)
    local slow = gap()
    emulator:heal(1)
    assert.is_true(math.abs(slow / usual - 5) < 0.01, slow .. " " .. usual)
    assert.is_true(math.abs(gap() / usual - 1) < 0.01)
  end)

  it("is refused when it makes no sense", function()
    start()
    for _, fault in ipairs({ "nothing", "stall;after=x", "stall;ms=-1", "status", "huge", "slow",
      "cut", "stall;in=nowhere", "reset;after", "refuse;ms=1" }) do
      local answer = begin(fault):finish()
      assert.equal(400, answer.status)
      assert.equal("x-kvroute-fault", answer:json().error.param)
    end
    local function order(path, body)
      return http.request(emulator.control, { path = path, method = "POST", body = body }).status
    end
    assert.equal(400, order("/fault", "stall;x=1"))
    assert.equal(400, order("/fault", { kind = "stall", x = 1 }))
    assert.equal(400, order("/fault", "[1]"))
    assert.equal(404, order("/fault?replica=5", "stall"))
    assert.equal("", emulator:order("GET", "/fault"))
  end)
end)

describe("a fleet of emulated replicas", function()
  after_each(Emulator.finish)

  it("keeps its replicas apart", function()
    emulator = Emulator.start({ replicas = 3 })
    assert.equal(3, #emulator.addresses)
    emulator:fault("status;code=500", 2)
    for i, status in ipairs({ 200, 500, 200 }) do
      local answer = http.request(emulator.addresses[i],
        { path = "/v1/completions", body = { prompt = "x", max_tokens = 1 } })
      assert.equal(status, answer.status)
      assert.equal(1, #emulator:log(i))
    end
    assert.equal(3, #emulator:log())
    -- Each of them takes orders for itself and for another.
    http.request(emulator.addresses[1], { path = "/fault?replica=1", method = "DELETE" })
    assert.equal("", emulator:order("GET", "/fault"))
  end)

  it("runs its engines on scaled time, and hardly late", function()
    emulator = Emulator.start({ args = { "--profile", "h100-8b-bf16", "--time-scale", "20" } })
    local before = loop.now()
    local answer = http.request(emulator.addresses[1], { path = "/v1/completions",
      body = { prompt = ("x"):rep(4000), max_tokens = 100 } })
    local took = loop.now() - before
    assert.equal(200, answer.status)
    -- 100 steps of 7 ms and more, a prefill and the overhead, a twentieth of it.
    assert.is_true(took > 0.037 and took < 0.15, tostring(took))
    assert.is_true(emulator:replicas()[1].late_p50_us < 1000)
  end)
end)
