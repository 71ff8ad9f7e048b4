-- A real engine, llama.cpp with a tiny model (llama/README.md): what the load driver, the router
-- and the calibration say, beside what the engine says.
local cjson = require("cjson")
local Driver = require("e2e.support.driver")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local Llama = require("e2e.support.llama")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Text = require("e2e.support.text")

local missing = Llama.missing()
local test = it
if missing then
  test = function(name) pending(name .. ": " .. missing) end
end

-- Small prompts: a token is a byte or two.
local SMALL = { "-s", "turns=3", "-s", "user_bytes=200", "-s", "assistant_bytes=60",
  "-s", "system_bytes=100" }

local LONG = { seconds = 60 } -- a busy machine takes it

local function arguments(...)
  local all = { ... }
  for _, each in ipairs(SMALL) do all[#all + 1] = each end
  return all
end

-- A request whose stream takes seconds.
local function endless()
  return Fleet.chat_request("Write on.", { stream = true, max_tokens = 6000, ignore_eos = true })
end

local function sum(entries, field)
  local total = 0
  for _, entry in ipairs(entries) do total = total + (entry[field] or 0) end
  return total
end

local function with_outcome(log, ...)
  local found = {}
  for _, entry in ipairs(log) do
    for _, outcome in ipairs { ... } do
      if entry.outcome == outcome then found[#found + 1] = entry end
    end
  end
  return found
end

describe("kvroute load against llama.cpp", function()
  after_each(function()
    Driver.finish()
    Llama.finish()
  end)

  test("counts what the engine counts", function()
    local engine = Llama.start()
    local report = Driver.run(engine.url, arguments("-u", "4", "-n", "32", "--think", "0",
      "-s", "max_tokens=32"), LONG)
    local log = engine:log()
    assert.equal(32, #log)
    assert.equal(32, report.completed)
    assert.equal(0, report.failed)
    assert.equal(sum(log, "prompt_tokens"), report.total_input_tokens)
    assert.equal(sum(log, "completion_tokens"), report.total_output_tokens)
    assert.equal(sum(log, "cached_tokens"), report.cached_tokens)
    -- Later turns were in the cache; some answers ended by themselves, others at their limit.
    assert.is_true(report.cached_share > 0.2, "cached " .. report.cached_share)
    assert.is_true(#with_outcome(log, "stop") > 0)
    assert.is_true(#with_outcome(log, "length") > 0)
    assert.equal(32, #with_outcome(log, "stop", "length"))
  end)

  test("times what the engine times, and a little more", function()
    local engine = Llama.start({ slots = 1 })
    local _, rows = Driver.run(engine.url, arguments("-u", "1", "-n", "12", "--think", "0",
      "-s", "max_tokens=24"), LONG)
    local log = engine:log()
    assert.equal(12, #log)
    local more = {}
    for i, entry in ipairs(log) do -- one at a time: in the same order
      local row = rows[i]
      assert.equal(entry.completion_tokens, row.output_tokens)
      assert.is_true(entry.first_token_ms > 0 and row.ttft_ms >= entry.first_token_ms)
      assert.is_true(row.e2el_ms >= entry.total_ms and row.e2el_ms >= row.ttft_ms)
      more[i] = row.ttft_ms - entry.first_token_ms
    end
    table.sort(more)
    assert.is_true(more[6] < 100, "half of the first tokens took long to arrive: " .. more[6])
  end)

  test("counts its refusals, and what it refused", function()
    local engine = Llama.start({ context = 768 })
    local report = Driver.run(engine.url, arguments("-u", "2", "-n", "24", "--think", "0",
      "-s", "max_tokens=4"), LONG)
    local refused = #with_outcome(engine:log(), "refused")
    assert.is_true(refused > 0 and refused < 24, refused .. " refused")
    assert.same({ status = refused }, report.failures)
    assert.same({ ["400"] = refused }, report.statuses)
    assert.equal(24 - refused, report.completed)
  end)

  test("leaves no answer running that it has given up", function()
    local engine = Llama.start({ slots = 1 })
    -- One has the slot and generates, the other waits for it.
    local report = Driver.run(engine.url, arguments("-u", "2", "-n", "2", "--think", "0",
      "--timeout", "1", "-s", "max_tokens=6000", "--extra-body", '{"ignore_eos":true}'))
    assert.same({ timeout = 2 }, report.failures)
    loop.wait(function() return #with_outcome(engine:log(), "abort") == 2 end, 5, "two aborts")
    assert.equal(0, engine:metric("num_requests_running"))
    assert.equal(0, engine:metric("num_requests_waiting"))
    assert.is_true(sum(engine:log(), "completion_tokens") < 6000)
  end)
end)

describe("kvroute serve before two llama.cpp", function()
  local engines

  local function start(options)
    engines = Llama.start_all(2, options)
    return Fleet.start({
      replicas = { engines[1].url, engines[2].url }, config = { policy = "prefix_affinity" },
    })
  end

  -- The engine of that name (as in a row), and the other one.
  local function engine_of(name)
    if engines[1].name == name then return engines[1], engines[2] end
    assert.equal(engines[2].name, name)
    return engines[2], engines[1]
  end

  -- Asks once more, and remembers the answer as a client would.
  local function turn(fleet, conversation, content, more)
    conversation[#conversation + 1] = { role = "user", content = content }
    local body = { model = Llama.model, messages = conversation, max_tokens = 24 }
    for key, value in pairs(more or {}) do body[key] = value end
    local answer = fleet:request({ path = "/v1/chat/completions", body = body }, 20)
    assert.equal(200, answer.status)
    conversation[#conversation + 1] = cjson.decode(answer:body()).choices[1].message
    return answer
  end

  after_each(function()
    local ok, why = pcall(Fleet.finish)
    Llama.finish()
    if not ok then error(why, 0) end
  end)

  test("keeps each conversation where its cache is", function()
    local fleet = start()
    local conversations = {}
    for i = 1, 2 do conversations[i] = { { role = "system", content = i .. Text.long(600) } } end
    for n = 1, 3 do
      for i = 1, 2 do turn(fleet, conversations[i], ("%d. %s"):format(n, Text.long(300))) end
    end
    local rows = fleet:rows(6)
    local before = {}
    for k, row in ipairs(rows) do
      local i = (k - 1) % 2 + 1
      local log = engine_of(row.replica):log()
      local entry = log[math.ceil(k / 2)] -- the engine's word: each has one of the conversations
      assert.equal(entry.prompt_tokens, row.prompt_tokens)
      assert.equal(entry.completion_tokens, row.output_tokens)
      assert.equal(entry.cached_tokens, row.cached_tokens)
      if before[i] then
        assert.equal(before[i].replica, row.replica)
        assert.equal("prefix", row.reason)
        -- All of the turn before was computed there: believed, and true.
        assert.is_true(row.match_blocks > 0)
        assert.is_true(row.match_blocks >= before[i].match_blocks)
        assert.is_true(row.cached_tokens >= before[i].prompt_tokens - 4,
          ("%d cached of %d"):format(row.cached_tokens, before[i].prompt_tokens))
      else
        assert.equal("cold", row.reason)
        assert.equal(0, row.match_blocks)
      end
      before[i] = row
    end
    assert.not_equal(before[1].replica, before[2].replica)
  end)

  test("tells the engine at once that a client has left", function()
    local fleet = start({ slots = 1 })
    local nearest = math.huge
    for n = 1, 3 do -- a machine that was busy just then is no finding
      local client = fleet:connect()
      client:begin(endless())
      client:wait_body(2000, 20) -- it does
      local left = loop.now()
      client:close()
      local row = fleet:row(n)
      assert.equal("cancelled", row.outcome)
      local entry = engine_of(row.replica):wait_outcome("abort")
      nearest = math.min(nearest, loop.now() - left)
      assert.is_true(entry.completion_tokens < 6000)
      if nearest < 0.5 then break end
    end
    assert.is_true(nearest < 0.5, "told after " .. nearest .. " s")
    -- Its only slot is free again.
    for _, engine in ipairs(engines) do assert.equal(0, engine:metric("num_requests_running")) end
    assert.equal(200, fleet:chat("Hello").status)
  end)

  test("moves the request of an engine that is killed", function()
    local fleet = start({ slots = 1 })
    local conversation = { { role = "system", content = Text.long(600) } }
    turn(fleet, conversation, "Hello.")
    local first = fleet:row(1)
    local home, other = engine_of(first.replica)
    -- Somebody else has its only slot, for as long as it lives: so there is no answer before.
    local someone = http.connect(home.name)
    someone:begin(endless())
    someone:wait_body(1000, 20)
    conversation[#conversation + 1] = { role = "user", content = "And now a longer answer." }
    local client = fleet:connect()
    client:begin({ path = "/v1/chat/completions", body = {
      model = Llama.model, messages = conversation, max_tokens = 40, ignore_eos = true } })
    home:wait_outcome("waiting")
    home:kill()
    local answer = client:finish(20)
    assert.equal(200, answer.status)
    assert.equal(40, cjson.decode(answer:body()).usage.completion_tokens)
    local row = fleet:row(2)
    assert.equal(other.name, row.replica)
    assert.equal("success", row.outcome)
    assert.equal(0, row.cached_tokens)
    -- The conversation lives there from now on.
    conversation[#conversation + 1] = cjson.decode(answer:body()).choices[1].message
    turn(fleet, conversation, "Thank you.")
    row = fleet:row(3)
    assert.equal(other.name, row.replica)
    assert.is_true(row.match_blocks > first.match_blocks and row.cached_tokens > 600)
    assert.equal(2, #other:log())
  end)
end)

describe("kvroute calibrate of llama.cpp", function()
  after_each(Llama.finish)

  -- One run: the profile as a table, and what was said.
  local function calibrate(engine)
    local profile = engine.folder .. "/profile.lua"
    local child = process.start({ Fleet.binary, "calibrate", engine.url, "--max-prompt", "1024",
      "--max-batch", "4", "--repeats", "1", "--name", "llama", "--out", profile },
      { out = engine.folder .. "/calibrate.out", err = engine.folder .. "/calibrate.err" })
    local _, code = child:wait(60)
    assert.equal(0, code, child:stderr())
    local found = {}
    setfenv(assert(loadfile(profile)), found)()
    return found, child:stderr()
  end

  test("finds a profile", function()
    local engine = Llama.start({ context = 6144 })
    local runs, found, said, prefill_ms = 0
    repeat -- a machine that was busy just then is no finding
      runs = runs + 1
      found, said = calibrate(engine)
      prefill_ms = (found.prefill_token_ms or 0) + (found.prefill_context_ms or 0)
    until prefill_ms > 0 or runs == 3
    assert.is_true(prefill_ms > 0, said)
    assert.equal("llama", found.name)
    assert.equal(6144, found.max_model_len) -- as it lists its model
    assert.is_truthy(said:find("timings, of which the profile misses", 1, true), said)
    -- At most one request of a run is given up, once it has been timed; the others end in full.
    loop.wait(function() return engine:metric("num_requests_running") == 0 end, 5, "an idle engine")
    local log = engine:log()
    assert.equal(#log, #with_outcome(log, "length", "abort"))
    assert.is_true(#with_outcome(log, "abort") <= runs)
  end)
end)
