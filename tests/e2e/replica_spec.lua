-- The emulated replica's API: the shapes of its answers, and its refusals.
local cjson = require("cjson")
local Emulator = require("e2e.support.emulator")
local http = require("e2e.support.http")
local sse = require("e2e.support.sse")

local emulator
local chat = Emulator.chat

local function start(...)
  emulator = Emulator.start({ args = { "--served-model-name", "m", ... } })
end

local function post(...) return emulator:post(...) end
local function get(...) return emulator:get(...) end
local function stream(...) return emulator:stream(...) end

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
end)
