-- Numbered cases, after public reports on other routers: what happens to an answer on its way back,
-- how it is cut, waited for, lost, and counted.
local cjson = require("cjson")
local check = require("e2e.support.check")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local sse = require("e2e.support.sse")

local chat_request = Fleet.chat_request

local function event_of(content)
  return "data: " .. cjson.encode({ choices = { { index = 0, delta = { content = content } } } })
    .. "\n\n"
end

local function posts(emulator, index)
  local found = {}
  for _, entry in ipairs(emulator:log(index)) do
    if entry.method == "POST" then found[#found + 1] = entry end
  end
  return found
end

describe("an answer", function()
  after_each(Peers.finish)

  it("B23 may be cut anywhere, inside characters too", function()
    local fleet = Fleet.start()
    local replica = fleet.replicas[1]
    local stream = event_of("漢字かな") .. event_of("😀🏴") .. event_of("é ß")
      .. 'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":3}}\n\n'
      .. "data: [DONE]\n\n"
    local client, asked = fleet:connect(), 0
    -- Chunks are the replica's; the cuts fall on their frames as well as on what is in them.
    local function play(bytes, cut)
      local answer = client:begin(chat_request("Hello", { stream = true }))
      local exchange = replica:take()
      exchange:send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
        .. "Transfer-Encoding: chunked\r\n\r\n")
      cut(exchange, bytes, answer)
      client:finish()
      check.same_bytes(stream, answer:body())
      check.same_bytes(bytes, answer:bytes():match("\r\n\r\n(.*)$"))
      asked = asked + 1
    end
    local framed = {}
    for piece in stream:gmatch(".-\n\n") do
      framed[#framed + 1] = ("%x\r\n%s\r\n"):format(#piece, piece)
    end
    framed = table.concat(framed) .. "0\r\n\r\n"
    for at = 1, #framed - 1 do
      play(framed, function(exchange, bytes)
        exchange:send(bytes:sub(1, at))
        loop.step(0.001)
        exchange:send(bytes:sub(at + 1))
      end)
    end
    -- Byte by byte, each seen by the client before the next is written.
    local delays = {}
    play(framed, function(exchange, bytes)
      local before = client.connection.received
      for i = 1, #bytes do
        local sent = loop.now()
        exchange:send(bytes:sub(i, i))
        -- The first ones wait for the first byte of the body, in our head's company.
        if client.connection.received > before or i > 40 then
          local seen = client.connection.received
          loop.wait(function() return client.connection.received > seen or client.reading.done end)
          delays[#delays + 1] = loop.now() - sent
        else
          loop.step(0.001)
        end
      end
    end)
    for _, row in ipairs(fleet:rows(asked)) do
      assert.equal(3, row.events)
      assert.equal(3, row.output_tokens)
      assert.is_true(row.done_seen)
      assert.equal("success", row.outcome)
    end
    table.sort(delays)
    assert.is_true(#delays > 300)
    local median = delays[math.ceil(#delays / 2)]
    assert.is_true(median < 0.001, ("%.2f ms a piece"):format(median * 1e3))
  end)

  it("B25 that is not read holds up its replica, and fills no memory", function()
    local emulator = Peers.emulator(1, "--time-scale", "50")
    emulator:fault("huge;bytes=20000000;marker=HUGE", 1)
    local fleet = Peers.start(emulator, { timeouts = { client_stall_ms = 1500 } })
    local before = fleet.router:rss()
    local clients = {}
    for i = 1, 50 do
      clients[i] = fleet:connect(16384)
      clients[i]:begin(chat_request("HUGE", { stream = true }))
      clients[i].connection.on_bytes = function() clients[i]:pause() end
    end
    loop.wait(function()
      for _, client in ipairs(clients) do
        if client.connection.reading then return false end
      end
      return true
    end)
    -- Others are served meanwhile, and quickly.
    local took = {}
    for i = 1, 31 do
      local began = loop.now()
      assert.equal(200, fleet:chat("quick " .. i, { max_tokens = 1 }).status)
      took[i] = loop.now() - began
    end
    table.sort(took)
    assert.is_true(took[16] < 0.1, "took " .. took[16])
    local held = Peers.grown(fleet, before)
    assert.is_true(held < 50 * 256 * 1024, ("%d bytes for 50 streams"):format(held))
    local out = 0
    for _, open in ipairs(fleet:admin("/admin/requests").requests) do out = out + open.bytes_out end
    assert.is_true(out < 50 * 20000000 / 2, "the replica is not held up")
    -- In the end they are cut, and that is counted.
    loop.wait(function() return fleet:admin("/admin/status").exchanges.open == 0 end, 5)
    local status = fleet:admin("/admin/status")
    assert.equal(50, status.listeners[1].timed_out)
    assert.equal(50, status.requests.outcomes.cancelled)
    fleet:wait_idle()
    emulator:wait_idle()
  end)

  it("B27 may end with a chunk of usage, which passes and counts", function()
    local emulator = Peers.emulator(1, "--time-scale", "50", "--prompt-tokens-details", "zero")
    local fleet = Peers.start(emulator)
    local asked = 0
    local function ask(options)
      local body = Fleet.chat("How many tokens are these?",
        { stream = true, max_tokens = 9, stream_options = options })
      local answer = fleet:request({ path = "/v1/chat/completions", body = body })
      asked = asked + 1
      -- It asks for no more than the client did.
      assert.equal(Emulator.xxh64(body), posts(emulator, 1)[asked].body_xxh64)
      local events, told = sse.events(answer:body()), {}
      for _, event in ipairs(events) do
        if event.json and type(event.json.usage) == "table" then told[#told + 1] = event.json end
      end
      assert.equal("[DONE]", events[#events].data)
      return told, fleet:row(asked)
    end
    local told, row = ask(nil)
    assert.equal(0, #told)
    assert.is_nil(row.prompt_tokens)
    assert.equal(9, row.events)
    for _, continuous in ipairs({ false, true }) do
      told, row = ask({ include_usage = true, continuous_usage_stats = continuous })
      assert.equal(continuous, #told > 1)
      local last = told[#told]
      assert.equal(0, #last.choices)
      assert.equal(9, last.usage.completion_tokens)
      assert.equal(9, row.output_tokens)
      assert.equal(last.usage.prompt_tokens, row.prompt_tokens)
      assert.equal(last.usage.prompt_tokens_details.cached_tokens, row.cached_tokens)
    end
    -- And usage that is null in every chunk but the last.
    local scripted = Fleet.start()
    local client = scripted:connect()
    client:begin(chat_request("Hello",
      { stream = true, stream_options = { include_usage = true } }))
    local exchange = scripted.replicas[1]:take()
    exchange:stream()
    exchange:chunk('data: {"choices":[{"index":0,"delta":{"content":"a"}}],"usage":null}\n\n')
    local usage = 'data: {"choices":[],"usage":{"prompt_tokens":31,"completion_tokens":1,'
      .. '"prompt_tokens_details":{"cached_tokens":16}}}\n\n'
    exchange:chunk(usage)
    exchange:finish()
    assert.is_truthy(client:finish():body():find(usage, 1, true))
    row = scripted:row(1)
    assert.same({ 31, 1, 16 }, { row.prompt_tokens, row.output_tokens, row.cached_tokens })
  end)

  it("B29 of which a byte was sent is never begun again elsewhere", function()
    local emulator = Peers.emulator(2, "--time-scale", "10")
    local fleet = Peers.start(emulator, { policy = "round_robin", health = { interval_ms = 20 } })
    local function asked() return #posts(emulator, 1) + #posts(emulator, 2) end
    emulator:fault("reset;after=3")
    local client = fleet:connect()
    local answer = client:begin(chat_request("Hello", { stream = true, max_tokens = 9 }))
    assert.equal("reset", client:wait_end(2))
    assert.is_false(answer.done)
    assert.equal(200, answer.status)
    local contents = 0
    for _, event in ipairs(sse.events(answer:body())) do
      local choice = event.json and event.json.choices[1]
      if choice and choice.delta.content and choice.delta.content ~= "" then
        contents = contents + 1
      end
    end
    assert.equal(3, contents)
    assert.equal(1, asked())
    local row = fleet:row(1)
    assert.equal("dropped", row.outcome)
    assert.equal("lost_mid_stream", row.error)
    assert.is_nil(row.moves)
    local state = fleet:replica_state(row.replica)
    assert.equal(0, state.connections.open, "the broken connection is in the pool")
    emulator:heal()
    fleet:wait_ready()
    -- Before the first byte it is, until somebody has it, at most so often.
    emulator:fault("reset;at=body;times=1")
    answer = fleet:chat("Hello", { stream = true, max_tokens = 9 })
    assert.equal(502, answer.status) -- both had the fault
    assert.equal(3, asked())
    fleet:wait_ready()
    emulator:fault("reset;at=head;times=1", 1)
    emulator:fault("none;times=1", 2)
    for _ = 1, 2 do
      assert.equal(200, fleet:chat("Hello", { stream = true, max_tokens = 9 }).status)
    end
    assert.equal(6, asked())
  end)

  it("B59 may be long in coming: each wait has a limit of its own, and its name", function()
    -- A tenth of an operator's values.
    local limits = { connect_ms = 300, idle_ms = 300, total_ms = 0, first_byte_ms = 0 }
    local fleet = Fleet.start({ replicas = 1, config = { timeouts = limits, moves = 1 } })
    local replica = fleet.replicas[1]
    local client = fleet:connect()
    client:begin(chat_request("A long prefill", { stream = true }))
    local exchange = replica:take()
    loop.sleep(0.5) -- silent for longer than between bytes
    exchange:stream()
    for _ = 1, 3 do
      loop.sleep(0.2)
      exchange:event("word")
    end
    exchange:finish()
    assert.equal(200, client:finish().status)
    assert.equal("success", fleet:row(1).outcome)
    assert.equal(1, replica:count())

    local function limited(config, replicas)
      return Fleet.start({ replicas = replicas, config = {
        timeouts = config, moves = 1, policy = "round_robin", health = { interval_ms = 60000 },
      } })
    end
    local function error_of(answer) return answer:json().error end
    -- The first byte: once more, elsewhere, and then it is told.
    fleet = limited({ first_byte_ms = 150 }, 3)
    local began = loop.now()
    local answer = fleet:chat("Hello")
    local took = loop.now() - began
    assert.is_true(took >= 0.3 and took < 0.8, "took " .. took)
    assert.equal(504, answer.status)
    assert.equal("first_byte_timeout", error_of(answer).code)
    assert.equal(2, Replica.count_all(fleet.replicas))
    assert.equal(1, fleet:row(1).moves)
    -- Between bytes: the end.
    fleet = limited({ idle_ms = 150 }, 2)
    client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    exchange = Replica.take_any(fleet.replicas)
    exchange:stream()
    exchange:event("one")
    assert.equal("reset", client:wait_end(1))
    assert.equal("idle_timeout", fleet:row(1).error)
    assert.equal(1, Replica.count_all(fleet.replicas))
    -- All of it.
    fleet = limited({ total_ms = 200 }, 2)
    answer = fleet:chat("Hello")
    assert.equal(504, answer.status)
    assert.equal("total_timeout", error_of(answer).code)
    assert.equal("total_timeout", fleet:row(1).error)
    -- A host that swallows connections.
    fleet = limited({ connect_ms = 150 }, 2)
    for _, each in ipairs(fleet.replicas) do each:clog() end
    answer = fleet:chat("Hello")
    assert.equal(502, answer.status)
    assert.is_truthy(error_of(answer).message:find("connect_timeout", 1, true))
  end)
end)
