-- The emulated replica: shapes of its answers, its engine's cache, its refusals.
local cjson = require("cjson")
local Emulator = require("e2e.support.emulator")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local sse = require("e2e.support.sse")

local emulator

local function start(...)
  emulator = Emulator.start({ args = { "--served-model-name", "m", ... } })
end

local function post(path, body, headers)
  return http.request(emulator.addresses[1], { path = path, body = body, headers = headers })
end

local function get(path, headers)
  return http.request(emulator.addresses[1], { path = path, headers = headers })
end

local function chat(content, more)
  local body = { model = "m", messages = { { role = "user", content = content } } }
  for key, value in pairs(more or {}) do body[key] = value end
  return body
end

local function stream(path, body)
  local answer = post(path, body)
  assert.equal(200, answer.status)
  return sse.events(answer:body()), answer
end

local function keys(object)
  local names = {}
  for name in pairs(object) do names[#names + 1] = name end
  table.sort(names)
  return table.concat(names, " ")
end

describe("the emulated replica", function()
  after_each(Emulator.finish)

  it("streams chat in vLLM's order of chunks", function()
    start("--prompt-tokens-details", "on")
    local events, answer = stream("/v1/chat/completions", chat("hello", {
      stream = true, max_tokens = 3, stream_options = { include_usage = true } }))
    assert.equal("text/event-stream; charset=utf-8", answer:header("content-type"))
    assert.equal("chunked", answer.framing)
    assert.equal(7, #events) -- role, 3 tokens, finish, usage, [DONE]
    assert.same({ role = "assistant", content = "" }, events[1].json.choices[1].delta)
    local text = ""
    for i = 2, 4 do
      assert.equal("content", keys(events[i].json.choices[1].delta))
      assert.equal(cjson.null, events[i].json.choices[1].finish_reason)
      text = text .. events[i].json.choices[1].delta.content
    end
    assert.equal("length", events[5].json.choices[1].finish_reason)
    assert.equal(cjson.null, events[5].json.choices[1].stop_reason)
    assert.equal(0, #events[6].json.choices)
    assert.equal(3, events[6].json.usage.completion_tokens)
    assert.is_nil(events[6].json.usage.prompt_tokens_details) -- nothing was cached
    assert.equal("[DONE]", events[7].data)
    assert.equal(1, answer:body():find('data: {"id":"chatcmpl-', 1, true))
    local ordered = '"model":"m","choices":[{"index":0,"delta":{"role"'
    assert.is_truthy(answer:body():find(ordered, 1, true))
    -- The same, whole: one text for one prompt.
    local whole = post("/v1/chat/completions", chat("hello", { max_tokens = 3 })):json()
    assert.equal(text, whole.choices[1].message.content)
    assert.equal("chat.completion", whole.object)
    assert.equal(cjson.null, whole.usage.prompt_tokens_details)
  end)

  it("tells usage as it is asked to, and in every chunk", function()
    start()
    local events = stream("/v1/chat/completions", chat("hello", { stream = true, max_tokens = 2,
      stream_options = { include_usage = true, continuous_usage_stats = true } }))
    for i, tokens in ipairs({ 0, 1, 2, 2, 2 }) do
      assert.equal(tokens, events[i].json.usage.completion_tokens)
    end
    events = stream("/v1/chat/completions", chat("hello", { stream = true, max_tokens = 2 }))
    assert.equal(5, #events) -- no usage chunk
    events = stream("/v1/chat/completions", chat("hello", { stream = true, max_tokens = 2,
      stream_options = { include_usage = false } }))
    assert.equal(5, #events)
  end)

  it("streams several choices of several prompts", function()
    start()
    local events = stream("/v1/completions", { prompt = { "a", "b" }, n = 2, max_tokens = 2,
      stream = true })
    local texts, finished = {}, {}
    for i = 1, #events - 1 do
      local choice = events[i].json.choices[1]
      assert.equal("finish_reason index logprobs prompt_token_ids stop_reason text token_ids",
        keys(choice))
      assert.equal(cjson.null, events[i].json.usage)
      texts[choice.index] = (texts[choice.index] or "") .. choice.text
      if choice.finish_reason ~= cjson.null then finished[choice.index] = true end
    end
    assert.same({ [0] = true, true, true, true }, finished)
    assert.equal("[DONE]", events[#events].data)
    for i = 1, 3 do assert.are_not.equal(texts[0], texts[i]) end
-- A role chunk for each choice of a chat comes before any of its text.
    events = stream("/v1/chat/completions", chat("x", { stream = true, max_tokens = 1, n = 2 }))
    assert.equal("assistant", events[1].json.choices[1].delta.role)
    assert.equal("assistant", events[2].json.choices[1].delta.role)
    assert.equal(1, events[2].json.choices[1].index)
  end)

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

  it("serves responses, and goes on from one it remembers", function()
    start("--store-responses", "8", "--prompt-tokens-details", "on")
    local events = stream("/v1/responses", { model = "m", input = ("word "):rep(40), stream = true,
      max_output_tokens = 2 })
    local order = {}
    for i, event in ipairs(events) do
      order[i] = event.event:gsub("^response%.", "")
      assert.equal(event.event, event.json.type)
      assert.equal(i - 1, event.json.sequence_number)
    end
    assert.same({ "created", "in_progress", "output_item.added", "content_part.added",
      "output_text.delta", "output_text.delta", "output_text.done", "content_part.done",
      "output_item.done", "completed" }, order)
    local response = events[#events].json.response
    assert.equal(2, response.usage.output_tokens)
    local next_turn = post("/v1/responses", { model = "m", input = "more",
      previous_response_id = response.id, max_output_tokens = 2 }):json()
    assert.is_true(next_turn.usage.input_tokens > response.usage.total_tokens)
    assert.is_true(next_turn.usage.input_tokens_details.cached_tokens > 0)
    local unknown = { input = "x", previous_response_id = "resp_no" }
    assert.equal(404, post("/v1/responses", unknown).status)
  end)

  it("serves messages", function()
    start()
    local body = { model = "m", max_tokens = 2, system = "be brief",
      messages = { { role = "user", content = "hello" } } }
    local whole = post("/v1/messages", body):json()
    assert.equal("message", whole.type)
    assert.equal("max_tokens", whole.stop_reason)
    assert.equal(2, whole.usage.output_tokens)
    body.stream = true
    local order, text = {}, ""
    for i, event in ipairs((stream("/v1/messages", body))) do
      order[i] = event.event
      if event.json.delta and event.json.delta.text then text = text .. event.json.delta.text end
    end
    assert.same({ "message_start", "content_block_start", "content_block_delta",
      "content_block_delta", "content_block_stop", "message_delta", "message_stop" }, order)
    assert.equal(whole.content[1].text, text)
    local count = post("/v1/messages/count_tokens", body):json()
    assert.equal(whole.usage.input_tokens, count.input_tokens)
    assert.equal("error", post("/v1/messages", { model = "no", messages = {} }):json().type)
  end)

  it("serves SGLang's generate with cumulative text", function()
    start()
    local events = stream("/generate", { text = "once", stream = true,
      sampling_params = { max_new_tokens = 3 } })
    assert.equal(5, #events)
    for i = 2, 4 do
      local before = events[i - 1].json.text
      assert.equal(before, events[i].json.text:sub(1, #before))
    end
    assert.same({ type = "length", length = 3 }, events[4].json.meta_info.finish_reason)
    local ids = post("/generate",
      { input_ids = { 1, 2, 3 }, sampling_params = { max_new_tokens = 2 } })
    assert.equal(3, ids:json().meta_info.prompt_tokens)
    assert.equal(0, ids:json().meta_info.cached_tokens)
  end)

  it("embeds, as numbers and as base64, the same text to the same vector", function()
    start("--embedding-size", "3")
    local one = post("/v1/embeddings", { model = "m", input = { "a", "b" } }):json()
    assert.equal(2, #one.data)
    assert.equal(3, #one.data[1].embedding)
    assert.are_not.same(one.data[1].embedding, one.data[2].embedding)
    local again = post("/v1/embeddings", { model = "m", input = "a" }):json()
    assert.same(one.data[1].embedding, again.data[1].embedding)
    local text = post("/v1/embeddings",
      { model = "m", input = "a", encoding_format = "base64" }):json()
    assert.equal(16, #text.data[1].embedding) -- 12 bytes
    assert.equal(0, one.usage.completion_tokens)
  end)

  it("lists its models and their adapters", function()
    start("--served-model-name", "alias", "--lora", "tuned", "--max-model-len", "4096")
    local list = get("/v1/models"):json()
    assert.equal("list", list.object)
    local names, parents = {}, {}
    for i, model in ipairs(list.data) do
      names[i], parents[i] = model.id, model.parent
      assert.equal("vllm", model.owned_by)
    end
    assert.same({ "m", "alias", "tuned" }, names)
    assert.same({ cjson.null, cjson.null, "m" }, parents)
    assert.equal(4096, list.data[1].max_model_len)
    for _, name in ipairs(names) do
      local answer = post("/v1/completions", { model = name, prompt = "x", max_tokens = 1 }):json()
      assert.equal(name, answer.model)
    end
    local unknown = post("/v1/completions", { model = "no", prompt = "x" })
    assert.equal(404, unknown.status)
    assert.same({ message = "The model `no` does not exist.", type = "NotFoundError",
      param = "model", code = 404 }, unknown:json().error)
  end)

  it("counts tokens", function()
    start()
    local tokens = post("/tokenize", { model = "m", prompt = "four bytes a token!!" }):json()
    assert.equal(5, tokens.count)
    assert.equal(5, #tokens.tokens)
    assert.equal(32768, tokens.max_model_len)
    local messages = { { role = "user", content = "hello" } }
    local count = post("/tokenize", { messages = messages }):json().count
    local usage = post("/v1/chat/completions", { messages = messages, max_tokens = 1 }):json().usage
    assert.equal(count, usage.prompt_tokens)
  end)

  it("refuses as vLLM does", function()
    start("--max-model-len", "256")
    local function refused(status, kind, path, body)
      local answer = post(path, body)
      assert.equal(status, answer.status)
      local problem = answer:json().error
      assert.equal(kind, problem.type)
      assert.equal(status, problem.code)
      return problem
    end
    local path = "/v1/chat/completions"
    refused(400, "Bad Request", path, '{"model":"m"')
    refused(400, "Bad Request", path, "[]")
    assert.equal("body.messages", refused(400, "Bad Request", path, { model = "m" }).param)
    refused(400, "Bad Request", path, { messages = "x" })
    refused(400, "Bad Request", path, chat("x", { stream = "yes" }))
    refused(400, "BadRequestError", path, chat("x", { max_tokens = 0 }))
    refused(400, "BadRequestError", path, chat("x", { stream_options = { include_usage = true } }))
    refused(400, "BadRequestError", path, chat(("x"):rep(1200)))
    refused(400, "BadRequestError", path, chat("x", { max_tokens = 300 }))
    refused(400, "BadRequestError", "/v1/completions", { prompt = "" })
    refused(400, "BadRequestError", "/v1/completions", { prompt = "x", suffix = "y" })
    refused(404, "Not Found", "/v1/nothing", {})
    local wrong = get("/v1/chat/completions")
    assert.equal(405, wrong.status)
    assert.equal("POST", wrong:header("allow"))
  end)

  it("asks for its key everywhere, and for its host", function()
    start("--key", "sesame")
    for _, path in ipairs({ "/health", "/metrics", "/v1/models", "/nothing" }) do
      local answer = get(path)
      assert.equal(401, answer.status)
      assert.same({ error = "Unauthorized" }, answer:json())
    end
    assert.equal(401, get("/health", { "Authorization: Bearer other" }).status)
    assert.equal(200, get("/health", { "Authorization: Bearer sesame" }).status)
    assert.equal(200, get("/v1/models", { "x-api-key: sesame" }).status)
    Emulator.finish()
    start("--check-host", "engine.test:80")
    assert.equal(404, get("/health").status)
    local answer = http.request(emulator.addresses[1],
      { path = "/health", host = "engine.test:80" })
    assert.equal(200, answer.status)
  end)

  it("puts the request's id into the answer's", function()
    start("--enable-request-id-headers")
    local answer = post("/v1/completions", { prompt = "x", max_tokens = 1 },
      { 'X-Request-Id: a"b' })
    assert.equal('cmpl-a"b', answer:json().id)
    assert.equal('a"b', answer:header("x-request-id"))
    answer = post("/v1/chat/completions", chat("x", { max_tokens = 1, stream = true }),
      { "X-Request-Id: 7" })
    assert.equal("chatcmpl-7", sse.events(answer:body())[1].json.id)
    local made = post("/v1/completions", { prompt = "x", max_tokens = 1 })
    assert.equal(32, #made:header("x-request-id"))
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

  it("plays SGLang and llama.cpp", function()
    start("--flavour", "sglang", "--prompt-tokens-details", "on")
    local events = stream("/v1/chat/completions", chat("hello", { stream = true, max_tokens = 1,
      stream_options = { include_usage = true } }))
    assert.equal(cjson.null, events[2].json.choices[1].delta.role)
    assert.equal(cjson.null, events[4].json.usage.prompt_tokens_details)
    assert.equal("error", post("/v1/completions", { prompt = "" }):json().object)
    assert.is_truthy(get("/metrics"):body():find("\nsglang:num_running_reqs{", 1, true))
    assert.equal(200, get("/health_generate").status)
    Emulator.finish()
    start("--flavour", "llamacpp")
    events = stream("/v1/chat/completions", chat("hello", { stream = true, max_tokens = 1 }))
    assert.equal(cjson.null, events[1].json.choices[1].delta.content)
    assert.same({}, events[3].json.choices[1].delta)
    assert.equal(1, events[3].json.timings.predicted_n)
    local any = post("/v1/chat/completions",
      chat("x", { model = "whatever", max_tokens = 1 })):json()
    assert.same({ cached_tokens = 0 }, any.usage.prompt_tokens_details)
    assert.equal(500, post("/v1/completions", "{").status)
    assert.same({ status = "ok" }, get("/health"):json())
    assert.is_truthy(get("/metrics"):body():find("\nllamacpp:requests_processing 0\n", 1, true))
    assert.equal("tokens", keys(post("/tokenize", { content = "hello" }):json()))
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
