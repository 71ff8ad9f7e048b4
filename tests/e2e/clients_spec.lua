-- What people have: curl, wrk, and the official OpenAI SDK, streamed and not, through the binary to
-- emulated replicas.
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")

local MODEL = "emulated"
local runs = 0

-- The emulated replicas end before the router does: it must not care.
local function finish()
  local ok, why = pcall(Emulator.finish)
  Fleet.finish()
  if not ok then error(why, 0) end
end

local function start_emulated(replicas, ...)
  local emulator = Emulator.start({ replicas = replicas, args = {
    "--served-model-name", MODEL, "--prompt-tokens-details", "on", "--time-scale", "10", ...,
  } })
  return Fleet.start({ replicas = emulator.urls }), emulator
end

-- Starts a program; its output lies in the fleet's folder.
local function begin(fleet, argv)
  runs = runs + 1
  local path = ("%s/client.%d"):format(fleet.folder, runs)
  return process.start(argv, { out = path .. ".out", err = path .. ".err" })
end

local function run(fleet, argv, seconds)
  local program = begin(fleet, argv)
  local how, code = program:wait(seconds or 30)
  assert.equal("exited", how)
  return code, program:stdout(), program:stderr()
end

local function url(fleet, path)
  return ("http://%s%s"):format(fleet.address, path)
end

describe("curl", function()
  after_each(finish)

  local function curl(fleet, path, ...)
    return begin(fleet, { "curl", "-sS", "--max-time", "20", ..., url(fleet, path) })
  end

  local function chat_args(stream)
    return "-H", "Content-Type: application/json", "-d", Fleet.chat("Which dock?", {
      model = MODEL, stream = stream, max_tokens = 5,
    })
  end

  -- Its arguments before the URL, its exit code and output.
  local function ask(fleet, path, arguments)
    local argv = { "curl", "-sS", "--max-time", "20" }
    for _, argument in ipairs(arguments) do argv[#argv + 1] = argument end
    argv[#argv + 1] = url(fleet, path)
    return run(fleet, argv)
  end

  it("gets answers, whole and as streams, over any version and in any framing", function()
    local fleet = start_emulated(2)
    local function succeeds(...)
      local code, out, err = ask(fleet, "/v1/chat/completions", { ... })
      assert.same({ 0, "" }, { code, err })
      return out
    end
    local whole = succeeds(chat_args(false))
    assert.is_truthy(whole:find('"object":"chat.completion"', 1, true), whole)
    local stream = succeeds("-N", chat_args(true))
    assert.is_truthy(stream:find('"delta":{"role":"assistant"', 1, true), stream)
    assert.equal("data: [DONE]\n\n", stream:sub(-14))
    assert.equal("data: [DONE]\n\n", succeeds("--http1.0", chat_args(true)):sub(-14))
    assert.equal("data: [DONE]\n\n",
      succeeds("-H", "Transfer-Encoding: chunked", chat_args(true)):sub(-14))
    assert.is_truthy(succeeds("-H", "Expect: 100-continue", chat_args(false)):find("choices"))
    assert.is_truthy(succeeds("--compressed", chat_args(false)):find("choices"))
    local head = succeeds("-i", chat_args(false))
    assert.is_truthy(head:find("\r\nx-kvroute-replica: 127.0.0.1:", 1, true), head)
    for _, row in ipairs(fleet:rows(7)) do
      assert.equal("success", row.outcome)
      assert.equal(5, row.output_tokens or 5)
    end
  end)

  it("sees models, health and errors", function()
    local fleet = start_emulated(1)
    local code, out = ask(fleet, "/v1/models", {})
    assert.equal(0, code)
    assert.is_truthy(out:find('"id":"emulated"', 1, true), out)
    assert.same({ 0, "ok\n", "" }, { ask(fleet, "/healthz", {}) })
    assert.same({ 0, "ready\n", "" }, { ask(fleet, "/readyz", {}) })
    code, out = ask(fleet, "/healthz", { "-I" })
    assert.equal(0, code)
    assert.is_truthy(out:find("^HTTP/1.1 200 OK\r\n"), out)
    code = ask(fleet, "/v1/chat/completions", { "--fail", "-d", '{"model":"none","messages":[]}' })
    assert.equal(22, code) -- curl's word for a status of 400 and more
  end)

  it("shows each event as it comes", function()
    local fleet = Fleet.start()
    local watching = curl(fleet, "/v1/chat/completions", "-N", "-d", Fleet.chat("x"))
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    local sent = ""
    for i = 1, 5 do
      sent = sent .. exchange:event("event " .. i)
      loop.wait(function() return watching:stdout() == sent end, 2, "the event at curl")
    end
    exchange:finish()
    assert.same({ "exited", 0 }, { watching:wait(5) })
  end)

  it("knows an answer that was cut from one that is whole", function()
    local fleet = Fleet.start()
    for _, framing in ipairs({ "chunked", "sized" }) do
      local asking = curl(fleet, "/v1/chat/completions", "-N", "-d", Fleet.chat("x"))
      local exchange = fleet.replicas[1]:take()
      if framing == "chunked" then
        exchange:stream()
        exchange:event("half")
      else
        exchange:send("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
      end
      loop.wait(function() return asking:stdout() ~= "" end, 2)
      exchange:close()
      local how, code = asking:wait(5)
      assert.equal("exited", how)
      assert.is_true(code ~= 0, framing)
      fleet:wait_ready()
    end
  end)
end)

describe("wrk", function()
  after_each(finish)

  local function wrk(fleet, ...)
    local code, out, err = run(fleet, { "wrk", "-t1", "-c16", "-d2s", ... })
    assert.equal(0, code, err)
    assert.is_nil(out:find("Non-2xx", 1, true), out)
    assert.is_nil(out:find("Socket errors", 1, true), out)
    return tonumber(out:match("(%d+) requests in"))
  end

  it("gets nothing but good answers, streams among them", function()
    local fleet = Fleet.start({ replicas = Load.replicas(4), config = { policy = "p2c" } })
    local requests = wrk(fleet, "-s", "tests/e2e/support/chat.wrk.lua", url(fleet, "/"), "bench")
    assert.is_true(requests > 500, requests .. " requests")
    local status = fleet:wait_idle()
    -- It goes away in the middle of its last requests.
    assert.is_true(status.requests.received - requests <= 16)
    assert.equal(0, status.requests.outcomes.failed + status.requests.outcomes.dropped)
    assert.is_true(status.requests.outcomes.cancelled <= 16)
    assert.equal(0, status.decisions.fallbacks)
  end)

  it("loads emulated replicas with streams", function()
    local fleet, emulator = start_emulated(2)
    local requests = wrk(fleet, "-s", "tests/e2e/support/chat.wrk.lua", url(fleet, "/"), MODEL)
    assert.is_true(requests > 20, requests .. " requests")
    fleet:wait_idle()
    emulator:wait_idle()
    local streams = 0
    for _, row in ipairs(fleet:rows()) do
      assert.is_true(row.outcome == "success" or row.outcome == "cancelled", row.outcome)
      if row.stream and row.outcome == "success" then
        streams = streams + 1
        assert.is_true(row.done_seen)
        assert.equal(3, row.events)
      end
    end
    assert.is_true(streams > 5)
  end)

  it("gets the router's own paths fast", function()
    local fleet = Fleet.start()
    assert.is_true(wrk(fleet, url(fleet, "/healthz")) > 1000)
  end)
end)

describe("the OpenAI SDK", function()
  after_each(finish)

  -- Runs these cases of sdk/chat.mjs, all of which must be well.
  local function begin_sdk(fleet, model, ...)
    return begin(fleet, { "node", "tests/e2e/sdk/chat.mjs", url(fleet, "/v1"), model, ... })
  end

  local function assert_ok(program, ...)
    local _, code = program:wait(60)
    local names = {}
    for i, name in ipairs({ ... }) do names[i] = "ok " .. name .. "\n" end
    assert.equal(table.concat(names), program:stdout(), program:stderr())
    assert.equal(0, code, program:stderr())
  end

  local function sdk(fleet, model, ...)
    assert_ok(begin_sdk(fleet, model, ...), ...)
  end

  it("does all it can do, streamed and not", function()
    local fleet, emulator = start_emulated(2)
    sdk(fleet, MODEL, "models", "chat", "chatStream", "streamHelper", "choices", "completions",
      "responses", "embeddings", "cachedTokens", "unknownModel", "badRequest", "parallel")
    emulator:wait_idle()
    fleet:wait_idle()
    local endpoints = {}
    for _, row in ipairs(fleet:rows()) do
      endpoints[row.endpoint] = (endpoints[row.endpoint] or 0) + 1
      if row.outcome ~= "success" then
        assert.is_true(row.status == 404 or row.status == 400, row.status)
      end
    end
    assert.equal(2, endpoints.completions)
    assert.equal(2, endpoints.responses)
    assert.equal(2, endpoints.embeddings)
    assert.equal(4 + 2 + 2 + 20, endpoints.chat)
  end)

  it("may abort a stream: the engine hears of it", function()
    local fleet, emulator = start_emulated(1)
    sdk(fleet, MODEL, "abort")
    emulator:wait_idle()
    local row = fleet:row(1)
    assert.equal("cancelled", row.outcome)
    assert.equal("aborted", row.tag)
    assert.is_true(emulator:log(1)[1] ~= nil)
  end)

  it("raises an error when a stream is cut", function()
    local fleet, emulator = start_emulated(1)
    emulator:fault("reset;after=3")
    sdk(fleet, MODEL, "cutStream")
    assert.equal("dropped", fleet:row(1).outcome)
  end)

  it("is told to come back when there is no replica, and does", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local name = fleet.replicas[1].name
    fleet.replicas[1].healthy = false
    loop.wait(function() return fleet:replica_state(name).operational == "down" end, 2)
    sdk(fleet, "test-model", "unavailable")
    local program = begin_sdk(fleet, "test-model", "retried")
    loop.wait(function() return #fleet:rows() >= 2 end, 20, "its first try")
    fleet.replicas[1].healthy = true
    assert_ok(program, "retried")
    assert.is_truthy(tonumber(fleet.replicas[1]:take().request:header("x-stainless-retry-count")))
  end)
end)
