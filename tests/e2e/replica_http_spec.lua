-- The emulated replica as a server and as a process: HTTP, signals, command line.
local Emulator = require("e2e.support.emulator")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

local emulator

local function start(...)
  emulator = Emulator.start({ args = { ... } })
end

local function connect()
  return http.connect(emulator.addresses[1])
end

-- Runs the binary to its end: exit code, stdout, stderr.
local function run(...)
  local out, err = os.tmpname(), os.tmpname()
  local child = process.start({ Emulator.binary, ... }, { out = out, err = err })
  local _, code = child:wait(5)
  local stdout, stderr = child:stdout(), child:stderr()
  os.remove(out)
  os.remove(err)
  return code, stdout, stderr
end

local written = {}

local mine = [[
name = "mine"
step_floor_ms = 5
prefill_token_ms = 0.01
bytes_per_token = 2
blocks = 100
max_num_batched_tokens = 512
max_num_seqs = 4
max_model_len = 1600
]]

-- A profile file with this text.
local function profile_file(text)
  local name = os.tmpname()
  os.remove(name)
  local path = name .. ".lua"
  local file = assert(io.open(path, "w"))
  file:write(text)
  file:close()
  written[#written + 1] = path
  return path
end

describe("the emulated replica over HTTP", function()
  after_each(Emulator.finish)

  it("answers an HTTP/1.0 client without chunks, and closes", function()
    start()
    local client = connect()
    client:begin({ version = "1.0", path = "/v1/completions",
      body = { prompt = "x", max_tokens = 2, stream = true } })
    client:wait_end()
    local answer = client.reading
    assert.equal("close", answer.framing)
    assert.is_true(answer.done)
    assert.equal("data: [DONE]\n\n", answer:body():sub(-14))
  end)

  it("answers pipelined requests in order, keeps a connection, takes a chunked body", function()
    start()
    local client = connect()
    local slow = http.text({ path = "/v1/completions", body = { prompt = "x", max_tokens = 20 } })
    local quick = http.text({ path = "/version" })
    client:send(slow .. quick .. slow .. quick)
    for i = 1, 4 do
      client:expect()
      local answer = client:finish()
      assert.equal(200, answer.status)
      assert.equal(i % 2 == 0, answer:json().version ~= nil)
    end
    local answer = client:request({ path = "/v1/completions", chunks = { '{"pro', 'mpt":"x"}' } })
    assert.equal(200, answer.status)
    assert.equal(5, emulator:log(1)[5].nth)
    answer = client:request({ path = "/health", method = "HEAD" })
    assert.equal(405, answer.status)
    answer = client:request({ path = "/health", headers = { "Connection: close" } })
    assert.equal("close", answer:header("connection"))
    assert.equal("fin", client:wait_end())
  end)

  it("sends the head of a stream before its first token, or with it", function()
    local function head_before_body(...)
      start("--profile", "h100x2-70b-fp8", ...)
      local client = connect()
      local answer = client:begin({ path = "/v1/completions",
        body = { prompt = ("x"):rep(8000), max_tokens = 1, stream = true } })
      client:finish()
      Emulator.finish()
      return answer.pieces[1].at - answer.head_at
    end
    assert.is_true(head_before_body() > 0.1)
    assert.is_true(head_before_body("--late-head") < 0.05)
  end)

  it("ends at once when it is told to, streams or not", function()
    start()
    local client = connect()
    client:begin({ path = "/v1/completions",
      body = { prompt = "x", max_tokens = 30000, stream = true } })
    client:wait_body(1)
    local before = loop.now()
    emulator:stop()
    assert.is_true(loop.now() - before < 0.5)
    assert.equal("reset", client:wait_end())
  end)

  it("writes its log to a file", function()
    local path = os.tmpname()
    start("--log", path, "--log-lines", "0")
    connect():request({ path = "/version" })
    emulator:stop()
    local line = io.open(path):read("*l")
    os.remove(path)
    assert.is_truthy(line:find('"target":"/version"', 1, true))
    assert.is_truthy(line:find('"outcome":"done"', 1, true))
  end)
end)

describe("the command line", function()
  after_each(Emulator.finish)
  teardown(function()
    for _, path in ipairs(written) do os.remove(path) end
  end)

  it("explains itself", function()
    local code, out = run("--help")
    assert.equal(0, code)
    assert.is_truthy(out:find("\n  replica ", 1, true))
    code, out = run("--version")
    assert.equal(0, code)
    assert.is_truthy(out:match("^kvroute %d+%.%d+%.%d+\n$"))
    code, out = run("replica", "--help")
    assert.equal(0, code)
    assert.is_truthy(out:find("--time-scale X", 1, true))
    code, out = run("fleet", "--faults")
    assert.equal(0, code)
    assert.is_truthy(out:find("stall", 1, true))
  end)

  it("says what is wrong, and exits with 2", function()
    for _, case in ipairs({
      { { "nothing" }, 'there is no command "nothing"' },
      { {}, "Usage: kvroute COMMAND" },
      { { "replica", "--port", "x" }, '--port is a whole number from 0 to 65535, not "x"' },
      { { "replica", "--port", "-1" }, '--port is a whole number from 0 to 65535, not "-1"' },
      { { "replica", "--port", "65536" }, "not \"65536\"" },
      { { "replica", "--port" }, "--port needs a value" },
      { { "replica", "--time-scale", "0" }, "--time-scale is a number from 0.001 to 10000" },
      { { "replica", "--flavour", "x" }, "--flavour is one of vllm, sglang, llamacpp" },
      { { "replica", "--nothing" }, "there is no option --nothing" },
      { { "replica", "more" }, '"more" is one argument too many' },
      { { "replica", "--profile", "x" }, "there are h100-8b-bf16" },
      { { "replica", "--profile", "./x.lua" }, "./x.lua" },
      { { "replica", "--profile", profile_file(mine .. "blocks = 0\n") },
        ":9: blocks: must be an integer between 1 and 100000000, got 0" },
      { { "replica", "--fault", "x" }, 'no fault is called "x"' },
      { { "fleet", "--port-base", "65530", "--replicas", "10" }, "do not fit above port 65530" },
      { { "replica", "--host", "nowhere" }, "is not a numeric address" },
    }) do
      local code, out, err = run(unpack(case[1]))
      assert.equal(2, code)
      assert.equal("", out)
      assert.is_truthy(err:find(case[2], 1, true), err)
    end
  end)

  it("takes a profile of one's own", function()
    local path = profile_file(mine)
    start("--profile", path)
    local client = connect()
    local answer = client:request({ path = "/v1/completions",
      body = { prompt = ("x"):rep(200), max_tokens = 3 } })
    assert.equal("mine", answer:json().model)
    assert.equal(100, answer:json().usage.prompt_tokens)
    assert.is_truthy(client:request({ path = "/metrics" }):body():find('num_gpu_blocks="100"',
      1, true))
  end)

  it("exits with 1 when it cannot do what it was asked", function()
    start()
    local port = emulator.addresses[1]:match(":(%d+)$")
    local code, out, err = run("replica", "--port", port)
    assert.equal(1, code)
    assert.equal("", out)
    assert.is_truthy(err:find("address already in use", 1, true), err)
    code, out, err = run("replica", "--log", "/nowhere/log")
    assert.equal("", out)
    assert.equal(1, code)
    assert.is_truthy(err:find("/nowhere/log", 1, true))
  end)
end)
