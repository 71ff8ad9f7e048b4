-- The engine behind an emulated replica: its cache, its queue, its metrics, its log.
local cjson = require("cjson")
local Emulator = require("e2e.support.emulator")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

local emulator
local chat = Emulator.chat

local function start(...)
  emulator = Emulator.start({ args = { "--served-model-name", "m", ... } })
end

local function post(...) return emulator:post(...) end
local function get(...) return emulator:get(...) end
local function stream(...) return emulator:stream(...) end

describe("the engine of an emulated replica", function()
  after_each(Emulator.finish)

  it("finds the prompt in its cache, all but the last token's block", function()
    start("--prompt-tokens-details", "on")
    local ids = {}
    for i = 1, 64 do ids[i] = i end
    local function cached()
      local usage = post("/v1/completions", { prompt = ids, max_tokens = 1 }):json().usage
      assert.equal(64, usage.prompt_tokens)
      return usage.prompt_tokens_details ~= cjson.null and usage.prompt_tokens_details.cached_tokens
    end
    assert.is_false(cached())
    assert.equal(48, cached()) -- of 64: the last one is computed again, and its block with it
    assert.equal(200, post("/reset_prefix_cache", "").status)
    assert.is_false(cached())
  end)

  it("finds its own answer in the next turn", function()
    start("--prompt-tokens-details", "on")
    local long = ("word "):rep(60)
    local first = post("/v1/chat/completions", chat(long, { max_tokens = 64 })):json()
    local answer = first.choices[1].message.content
    local second = post("/v1/chat/completions", { model = "m", max_tokens = 1, messages = {
      { role = "user", content = long },
      { role = "assistant", content = { { type = "text", text = answer } } },
      { role = "user", content = "go on" } } }):json()
    local reached = second.usage.prompt_tokens_details.cached_tokens
    local total = first.usage.total_tokens
    assert.is_true(reached >= total - 16, reached .. " of " .. total)
-- Another salt shares nothing.
    local salted = post("/v1/chat/completions",
      chat(long, { max_tokens = 1, cache_salt = "s" })):json()
    assert.equal(cjson.null, salted.usage.prompt_tokens_details)
  end)

  it("keeps to the settings of cached tokens in usage", function()
    local function details(mode)
      start("--prompt-tokens-details", mode)
      local first = post("/v1/completions", { prompt = ("x"):rep(400), max_tokens = 1 }):json()
      local second = post("/v1/completions", { prompt = ("x"):rep(400), max_tokens = 1 }):json()
      Emulator.finish()
      return first.usage.prompt_tokens_details, second.usage.prompt_tokens_details
    end
    assert.same({ cjson.null, cjson.null }, { details("off") })
    assert.same({ cjson.null, { cached_tokens = 96 } }, { details("on") })
    assert.same({ { cached_tokens = 0 }, { cached_tokens = 96 } }, { details("zero") })
  end)

  it("stops early by seed, unless told to ignore that", function()
    start("--early-stops", "1")
    local stops, lengths, different = 0, {}, 0
    for i = 1, 8 do
      local answer = post("/v1/completions", { prompt = "p" .. i, max_tokens = 32 }):json()
      if answer.choices[1].finish_reason == "stop" then stops = stops + 1 end
      local length = answer.usage.completion_tokens
      if not lengths[length] then lengths[length], different = true, different + 1 end
      assert.is_true(answer.usage.completion_tokens < 32)
    end
    assert.equal(8, stops)
    assert.is_true(different > 4)
    local full = post("/v1/completions",
      { prompt = "p1", max_tokens = 32, ignore_eos = true }):json()
    assert.equal("length", full.choices[1].finish_reason)
    assert.equal(32, full.usage.completion_tokens)
    local least = post("/v1/completions",
      { prompt = "p1", max_tokens = 32, min_tokens = 31 }):json()
    assert.is_true(least.usage.completion_tokens >= 31)
  end)

  it("has a metrics page of vLLM's names", function()
    start()
    post("/v1/completions", { prompt = ("x"):rep(100), max_tokens = 4 })
    post("/v1/completions", { prompt = ("x"):rep(100), max_tokens = 4 })
    local page = get("/metrics"):body()
    local function value(name)
      return tonumber(page:match("\n" .. name:gsub("[{}\"+.]", "%%%0") .. " ([%d.e+-]+)\n"))
    end
    local labels = '{engine="0",model_name="m"}'
    assert.equal(0, value("vllm:num_requests_running" .. labels))
    assert.equal(50, value("vllm:prompt_tokens_total" .. labels))
    assert.equal(16, value("vllm:prefix_cache_hits_total" .. labels))
    assert.equal(8, value("vllm:generation_tokens_total" .. labels))
    assert.equal(2, value("vllm:time_to_first_token_seconds_bucket" ..
      '{engine="0",model_name="m",le="+Inf"}'))
    assert.equal(6, value("vllm:inter_token_latency_seconds_count" .. labels))
    assert.equal(2, value("vllm:request_params_n_count" .. labels))
    assert.equal(8, value("vllm:request_params_max_tokens_sum" .. labels))
    assert.equal(34, value("vllm:request_prefill_kv_computed_tokens_sum" .. labels))
    -- Each step's prompt and tokens: 26, 1, 1, 1 of both; the latest is still being counted.
    assert.equal(57, value("vllm:iteration_tokens_total_sum" .. labels))
    assert.equal(7, value("vllm:iteration_tokens_total_count" .. labels))
    assert.equal(2, value('http_requests_total{handler="/v1/completions",status="2xx"}'))
    assert.is_truthy(page:find('block_size="16"', 1, true))
  end)

  it("answers 503 when its queue is full, and frees an aborted request at once", function()
    start("--max-num-seqs", "1", "--max-num-queued-reqs", "1")
    local long = { prompt = "x", max_tokens = 30000, stream = true }
    local first, second = http.connect(emulator.addresses[1]), http.connect(emulator.addresses[1])
    first:begin({ path = "/v1/completions", body = long })
    first:wait_body(1)
    second:begin({ path = "/v1/completions", body = long })
    loop.wait(function() return emulator:replicas()[1].waiting == 1 end)
    local full = post("/v1/completions", long)
    assert.equal(503, full.status)
    assert.equal("ServiceUnavailableError", full:json().error.type)
    first:close()
    second:wait_body(1)
    second:reset()
    emulator:wait_idle(0.5)
    assert.equal(0, emulator:replicas()[1].blocks_used)
    local entry = emulator:wait_log(function(line) return line.seq == 1 end)
    assert.equal("aborted", entry.outcome)
    assert.is_truthy(get("/metrics"):body():find('finished_reason="abort"} 2\n', 1, true))
    assert.is_truthy(get("/metrics"):body():find('reason="num_queued_reqs"} 1\n', 1, true))
  end)

  it("ends in order also when it is told to again and again", function()
    emulator = Emulator.start({ env = process.TRACED })
    local nagging = emulator.process:nag()
    emulator:stop()
    nagging:wait(5)
  end)

  it("says that its queue is full as SGLang does, and counts waiting tokens", function()
    start("--flavour", "sglang", "--max-num-seqs", "1", "--max-num-queued-tokens", "30")
    local long = { prompt = ("x"):rep(80), max_tokens = 30000, stream = true }
    local clients = {}
    for i = 1, 2 do
      clients[i] = http.connect(emulator.addresses[1])
      clients[i]:begin({ path = "/v1/completions", body = long })
      loop.wait(function()
        return emulator:replicas()[1][i == 1 and "running" or "waiting"] == 1
      end)
    end
    -- 20 tokens wait; 20 more are too many. A stream is told by a stream that ends at once.
    local events = stream("/v1/completions", long)
    assert.equal("abort", events[1].json.choices[1].finish_reason)
    assert.equal("[DONE]", events[#events].data)
    local whole = post("/v1/completions", { prompt = ("x"):rep(80), max_tokens = 3 })
    assert.equal(503, whole.status)
    clients[2]:close()
    loop.wait(function() return emulator:replicas()[1].waiting == 0 end)
    clients[1]:close()
    assert.equal(200, post("/v1/completions", { prompt = ("x"):rep(80), max_tokens = 3 }).status)
  end)

  it("forgets its prefixes when told to, unless requests hold them", function()
    start("--prompt-tokens-details", "zero")
    local function cached()
      return post("/v1/completions", { prompt = ("x"):rep(100), max_tokens = 2 })
        :json().usage.prompt_tokens_details.cached_tokens
    end
    assert.equal(0, cached())
    assert.equal(16, cached())
    local busy = http.connect(emulator.addresses[1])
    busy:begin({ path = "/v1/completions", body = { prompt = "y", max_tokens = 30000,
      stream = true } })
    busy:wait_body(1)
    assert.equal(409, post("/reset_prefix_cache", "").status)
    assert.equal(16, cached())
    busy:close()
    emulator:wait_idle(0.5)
    assert.equal(200, post("/reset_prefix_cache", "").status)
    assert.equal(0, cached())
    assert.is_truthy(get("/version"):json().version:find("^%d+%.%d+"))
  end)

  it("logs what reached it, byte for byte", function()
    start()
    local client = http.connect(emulator.addresses[1])
    local body = '{ "prompt":"x", "max_tokens":1 }'
    client:request({ path = "/v1/completions?a=%2F&b", body = body,
      headers = { "X-Odd: a  b", "x-odd: c" } })
    client:request({ path = "/health" })
    client:close()
    local first, second = unpack(emulator:log(1))
    assert.equal("/v1/completions?a=%2F&b", first.target)
    assert.equal(#body, first.body_bytes)
    assert.equal(Emulator.xxh64(body), first.body_xxh64)
    local odd = {}
    for _, header in ipairs(first.headers) do
      if header[1]:lower() == "x-odd" then odd[#odd + 1] = header end
    end
    assert.same({ { "X-Odd", "a  b" }, { "x-odd", "c" } }, odd)
    assert.equal("done", first.outcome)
    assert.equal(200, first.status)
    assert.equal(1, first.nth)
    assert.equal(2, second.nth)
    assert.equal(first.connection, second.connection)
    emulator:order("DELETE", "/log")
    assert.equal(0, #emulator:log())
  end)
end)
