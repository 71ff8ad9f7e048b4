-- kvroute load against endpoints whose every byte and delay is known: what it measures, what it
-- calls a failure, when it sends, and how it ends.
local cjson = require("cjson")
local signal = require("posix.signal")
local connection = require("e2e.support.connection")
local Driver = require("e2e.support.driver")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")

local function finish()
  Driver.finish()
  Emulator.finish()
  Replica.stop_all()
  connection.close_all()
  process.kill_all()
end

local USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%d,'
  .. '"prompt_tokens_details":{"cached_tokens":64}}}\n\n'

-- A busy machine may make a driver late, which is flagged: of the machine, not of what is tested.
local function assert_done(status)
  assert.is_true(status == 0 or status == 3, "exit status " .. status)
end

local function flags(report)
  local found = {}
  for _, flag in ipairs(report.flags) do
    if flag ~= "behind" and flag ~= "busy" then found[#found + 1] = flag end
  end
  return found
end

-- A good stream of so many words, at once.
local function stream(exchange, words)
  exchange:stream()
  for _ = 1, words or 3 do exchange:event("word ") end
  exchange:chunk(USAGE:format(words or 3))
  exchange:finish()
end

local function sorted_bodies(replica)
  local bodies = {}
  for i, exchange in ipairs(replica.exchanges) do bodies[i] = exchange.body end
  table.sort(bodies)
  return bodies
end

-- As numpy.percentile.
local function percentile(values, share)
  local sorted = {}
  for i, value in ipairs(values) do sorted[i] = value end
  table.sort(sorted)
  local place = share * (#sorted - 1)
  local low = math.floor(place)
  local high = math.min(low + 1, #sorted - 1)
  return sorted[low + 1] + (sorted[high + 1] - sorted[low + 1]) * (place - low)
end

local function mean(values)
  local sum = 0
  for _, value in ipairs(values) do sum = sum + value end
  return sum / #values
end

describe("a load's figures", function()
  after_each(finish)

  -- The replica waits by the clock and in no loop, so that it is on time; what it did is written
  -- down as it did it.
  local function scheduled_replica(schedule, did)
    return Replica.start({ script = function(exchange)
      local began = loop.now()
      local plan = schedule[#did.e2el + 1]
      local at, last = began, nil
      exchange:stream()
      for i, delay_ms in ipairs(plan) do
        at = at + delay_ms * 1e-3
        while loop.now() < at do end -- luacheck: ignore 542
        exchange:event("word ")
        local now = loop.now()
        if i == 1 then
          did.ttft[#did.ttft + 1] = (now - began) * 1e3
        else
          did.itl[#did.itl + 1] = (now - last) * 1e3
        end
        last = now
      end
      exchange:chunk(USAGE:format(#plan))
      exchange:finish()
      local e2el = (loop.now() - began) * 1e3
      did.e2el[#did.e2el + 1] = e2el
      did.tpot[#did.tpot + 1] = (e2el - did.ttft[#did.ttft]) / (#plan - 1)
    end })
  end

  -- How far each figure is off what the replica did; of several runs the nearest.
  local function compare(report, did, nearest)
    local function note(name, got, want)
      nearest[name] = math.min(nearest[name] or math.huge, math.abs(got - want))
    end
    for _, name in ipairs { "ttft", "itl", "tpot", "e2el" } do
      note("mean " .. name, report["mean_" .. name .. "_ms"], mean(did[name]))
      note("median " .. name, report["median_" .. name .. "_ms"], percentile(did[name], 0.5))
      for _, percent in ipairs { 25, 90, 95, 99 } do
        note(("p%d %s"):format(percent, name), report[("p%d_%s_ms"):format(percent, name)],
          percentile(did[name], percent / 100))
      end
    end
  end

  -- Names of the figures that are off by a millisecond or more.
  local function far(nearest)
    local names = {}
    for name, off in pairs(nearest) do
      if off >= 1 then names[#names + 1] = ("%s by %.2f ms"):format(name, off) end
    end
    return table.concat(names, ", ")
  end

  it("are right within a millisecond, by a written schedule of delays", function()
    local schedule = {}
    for i = 1, 40 do -- first token after 5 .. 64 ms, gaps of 0.5 .. 16 ms
      schedule[i] = { 5 + (i * 37) % 60 }
      for k = 2, 3 + i % 5 do schedule[i][k] = 0.5 + (i * k * 13) % 31 / 2 end
    end
    local nearest = {}
    for _ = 1, 5 do -- a machine that was busy just then is no finding
      local did = { ttft = {}, itl = {}, tpot = {}, e2el = {} }
      local replica = scheduled_replica(schedule, did)
      local report, rows = Driver.run(replica.url, { "-u", "1", "--think", "0", "-n", "40",
        "--percentiles", "25,90,95,99" })
      replica:stop()
      assert.equal(40, report.completed)
      assert.equal(4000, report.total_input_tokens)
      assert.equal(0.64, report.cached_share)
      assert.equal(#did.itl, (function() -- every gap is one
        local events = 0
        for _, row in ipairs(rows) do events = events + row.content_events - 1 end
        return events
      end)())
      compare(report, did, nearest)
      if far(nearest) == "" then break end
    end
    assert.equal("", far(nearest))
  end)

  it("are simulated time at a time scale, limits of goodput too", function()
    local replica = Replica.start({ script = function(exchange)
      local slow = #exchange.replica.exchanges % 2 == 0
      loop.after(slow and 0.2 or 0.02, function() stream(exchange) end)
    end })
    local report, rows = Driver.run(replica.url, { "-u", "1", "--think", "0", "-n", "10",
      "--time-scale", "10", "--goodput", "ttft:1500", "itl_p50:500" })
    assert.equal(10, report.completed)
    assert.equal(5, report.good)
    assert.is_true(report.median_ttft_ms > 1100) -- of two groups: between them
    assert.is_true(report.duration > 11 and report.wall_s < report.duration / 5)
    assert.near(report.good / report.duration, report.request_goodput, 1e-6)
    for i, row in ipairs(rows) do
      assert.equal(i % 2 == 1, row.good)
      assert.is_true(row.ttft_ms >= (i % 2 == 1 and 200 or 2000))
    end
  end)

  it("are the familiar table without --json", function()
    local replica = Replica.start({ script = stream })
    local text, _, status = Driver.run(replica.url, { "-u", "2", "-n", "10", "-g", "ttft:990" },
      { text = true })
    assert_done(status)
    for _, line in ipairs {
      "============ Serving Benchmark Result ============",
      "Successful requests:                     10        ",
      "Failed requests:                         0         ",
      "Total input tokens:                      1000      ",
      "Total generated tokens:                  30        ",
      "---------------Time to First Token----------------",
      "-----Time per Output Token (excl. 1st token)------",
      "---------------Inter-token Latency----------------",
      "==================================================",
    } do
      assert.truthy(text:find(line .. "\n", 1, true), line)
    end
    for _, name in ipairs { "Request throughput (req/s)", "Request goodput (req/s)",
      "Output token throughput (tok/s)", "Total token throughput (tok/s)", "Mean TTFT (ms)",
      "Median TPOT (ms)", "P99 ITL (ms)", "Median E2EL (ms)", "Benchmark duration (s)" } do
      local value = text:match(name:gsub("[%(%)]", "%%%0") .. ": +([%d.]+) *\n")
      assert.truthy(tonumber(value), name)
    end
  end)

  it("read whole answers too", function()
    local replica = Replica.start({ script = Replica.answers() })
    local report, rows = Driver.run(replica.url, { "-u", "1", "-n", "5", "--no-stream",
      "--api", "completions", "--model", "other" })
    assert.equal(5, report.completed)
    assert.equal(10, report.total_output_tokens)
    assert.equal("other", report.model_id)
    assert.equal(cjson.null, rows[1].itl_p50_ms)
    local exchange = replica.exchanges[1]
    assert.equal("/v1/completions", exchange.request.target)
    local body = cjson.decode(exchange.body)
    assert.equal("string", type(body.prompt))
    assert.is_nil(body.stream)
    assert.equal("other", body.model)
  end)
end)

describe("a load's failures", function()
  after_each(finish)

  local WORD = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'

  local kinds = {
    status = function(exchange) exchange:reply({ status = 500, body = { error = "x" } }) end,
    lost = function(exchange) exchange:close() end,
    truncated = function(exchange)
      exchange:stream()
      exchange:event("a")
      loop.after(0.01, function() exchange:reset() end)
    end,
    no_done = function(exchange)
      exchange:stream()
      exchange:event("a")
      exchange:send("0\r\n\r\n")
    end,
    error_event = function(exchange)
      exchange:stream()
      exchange:event("a")
      exchange:chunk('data: {"error":{"message":"gone","code":500}}\n\n')
      exchange:finish()
    end,
    aborted = function(exchange)
      exchange:stream()
      exchange:event("a")
      exchange:chunk('data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n')
      exchange:finish()
    end,
    malformed = function(exchange) exchange:send("this is not HTTP\r\n\r\n") end,
    empty = function(exchange)
      exchange:stream()
      exchange:finish()
    end,
    timeout = function(exchange)
      exchange:stream()
      exchange:event("a")
    end,
  }

  for kind, script in pairs(kinds) do
    it("have a kind: " .. kind, function()
      local replica = Replica.start({ script = script })
      local report, rows, status = Driver.run(replica.url,
        { "-u", "1", "-n", "1", "--timeout", "0.3" })
      assert.same({ [kind] = 1 }, report.failures)
      assert.equal(1, report.failed)
      assert.equal(0, report.completed)
      assert.equal(1, status) -- nothing succeeded
      assert.equal(kind, rows[1].error)
      assert.equal("failed", rows[1].outcome)
      assert.equal(false, rows[1].good)
      assert.same({ "failures", "nothing_succeeded" }, flags(report))
      if kind == "status" then assert.same({ ["500"] = 1 }, report.statuses) end
    end)
  end

  it("have a kind: connect", function()
    local replica = Replica.start()
    replica:refuse()
    local report, _, status = Driver.run(replica.url, { "-u", "1", "-n", "1", "--model", "m" })
    assert.same({ connect = 1 }, report.failures)
    assert.equal(1, status)
  end)

  it("have a kind: an end of the connection that is no end of the answer", function()
    local replica = Replica.start({ script = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 500\r\n"
        .. "\r\n" .. WORD .. "data: [DONE]\n\n")
      exchange:close()
    end })
    local report = Driver.run(replica.url, { "-u", "1", "-n", "1" })
    assert.same({ truncated = 1 }, report.failures)
  end)

  it("flag a run when they are more than one in a hundred, and are in no percentile", function()
    local replica = Replica.start({ script = function(exchange)
      if #exchange.replica.exchanges % 20 == 0 then
        loop.after(0.1, function() exchange:reply({ status = 503 }) end)
      else
        stream(exchange)
      end
    end })
    local report, _, status = Driver.run(replica.url, { "-u", "1", "-n", "40", "--think", "0" })
    assert.equal(38, report.completed)
    assert.equal(3, status)
    assert.same({ "failures" }, flags(report))
    assert.is_true(report.p99_e2el_ms < 100)
    local good = Driver.run(replica.url, { "-u", "1", "-n", "10", "--think", "0" })
    assert.same({}, flags(good))
  end)

  it("are none where a kept connection was closed as it was used again", function()
    local replica = Replica.start({ script = function(exchange)
      if exchange.nth > 1 then exchange:close() else stream(exchange) end
    end })
    local report, rows = Driver.run(replica.url, { "-u", "1", "-n", "6", "--think", "0" })
    assert.equal(6, report.completed)
    assert.equal(5, report.resent)
    assert.is_true(rows[2].resent)
    assert.equal(6, report.connections)
  end)

  it("are told to nobody who must not know the key", function()
    local replica = Replica.start({ script = stream })
    local run = Driver.start(replica.url,
      { "-u", "1", "-n", "2", "--key-env", "THE_KEY", "--header", "X-Team: blue" },
      { env = { THE_KEY = "sk-secret-42" } })
    run:finish()
    for _, exchange in ipairs(replica.exchanges) do
      assert.equal("Bearer sk-secret-42", exchange.request:header("authorization"))
      assert.equal("blue", exchange.request:header("x-team"))
    end
    assert.equal("Bearer sk-secret-42", replica.asked_by["/v1/models"]:header("authorization"))
    local said = run.process:stdout() .. run.process:stderr() .. Fleet.read(run.rows_path)
    assert.is_nil(said:find("secret", 1, true))
  end)
end)

describe("an open loop", function()
  after_each(finish)

  local function due_times(rows)
    local times = {}
    for i, row in ipairs(rows) do times[i] = row.due_at_ms end
    table.sort(times)
    return times
  end

  it("sends when it is time, whatever becomes of the answers", function()
    local replica = Replica.start({ script = function(exchange)
      loop.after(0.5, function() stream(exchange) end) -- longer than the whole schedule
    end })
    local report, rows, status = Driver.run(replica.url, { "-r", "100", "-n", "40" })
    assert_done(status)
    assert.equal(40, report.completed)
    assert.equal(40, report.max_concurrent_requests)
    assert.equal("open", report.driver)
    assert.near(0.4, report.duration, 1e-6) -- 40 / 100
    for i, due in ipairs(due_times(rows)) do assert.near((i - 1) * 10, due, 0.001) end
    for _, row in ipairs(rows) do
      assert.near(row.due_at_ms + row.late_ms, row.started_at_ms, 0.002)
      assert.is_nil(row.gap_ms)
      assert.is_true(row.e2el_ms >= 490)
    end
    assert.is_nil(report.client_gap)
    -- The replica saw them over the time that they should take.
    local first, last = replica.exchanges[1].at, replica.exchanges[40].at
    assert.is_true(last - first > 0.3)
  end)

  it("has Poisson, bursty, ramped and given times, the same ones for the same seed", function()
    local replica = Replica.start({ script = stream })
    local function times(arguments)
      local all = { "-n", "60", "--time-scale", "20" }
      for _, argument in ipairs(arguments) do all[#all + 1] = argument end
      local report, rows = Driver.run(replica.url, all)
      assert.equal(60, report.completed)
      return due_times(rows)
    end
    local poisson = times { "-r", "10", "--burstiness", "1", "--seed", "3" }
    assert.same(poisson, times { "-r", "10", "--burstiness", "1", "--seed", "3" })
    assert.are_not.same(poisson, times { "-r", "10", "--burstiness", "1", "--seed", "4" })
    local ramp = times { "-r", "5", "--ramp-to", "50", "--ramp", "2" }
    assert.is_true(ramp[2] - ramp[1] > 2 * (ramp[60] - ramp[59]))
    local path = Fleet.new_folder()
    local lines = {}
    for i = 1, 60 do lines[i] = i * i end
    Fleet.write(path .. "/times", table.concat(lines, "\n") .. "\n")
    assert.same(lines, times { "--times", path .. "/times" })
    Fleet.remove_folder(path)
  end)

  it("drops what is over its bound, and says so", function()
    local replica = Replica.start({ script = function(exchange)
      loop.after(0.4, function() stream(exchange) end)
    end })
    local report, rows, status = Driver.run(replica.url,
      { "-r", "200", "-n", "40", "--max-in-flight", "10" })
    assert.same({ dropped = 30 }, report.failures)
    assert.equal(10, report.completed)
    assert.equal(3, status)
    assert.equal(10, #replica.exchanges)
    assert.equal(40, #rows)
  end)

  it("replays a recorded trace: its times, sessions and shared prefixes", function()
    local folder = Fleet.new_folder()
    local lines = {}
    for i = 1, 6 do
      lines[i] = cjson.encode({ at_ms = (i - 1) * 50, session = "s" .. i % 2, input_tokens = 64 * i,
        output_tokens = 3, block_tokens = 64, blocks = { { 7, i } } })
    end
    Fleet.write(folder .. "/trace.jsonl", table.concat(lines, "\n") .. "\n")
    local replica = Replica.start({ script = stream })
    local run = Driver.start(replica.url, { "--trace", folder .. "/trace.jsonl", "--set",
      "bytes_per_token=4" })
    local report, rows = run:finish()
    Fleet.remove_folder(folder)
    assert.equal(6, report.completed, run.process:stderr())
    assert.same({ 0, 50, 100, 150, 200, 250 }, due_times(rows))
    local function prompt(i)
      return cjson.decode(replica.exchanges[i].body).messages[1].content
    end
    for i = 2, 6 do
      assert.equal(256 * i, #prompt(i))
      assert.equal(prompt(i - 1), prompt(i):sub(1, 256 * (i - 1)))
    end
  end)
end)

describe("a closed loop", function()
  after_each(finish)

  it("sends each user's next turn when its answer is there, in the loop's same turn", function()
    local replica = Replica.start({ script = stream })
    local report, rows = Driver.run(replica.url, { "-u", "4", "-n", "200", "--think", "0" })
    assert.equal(200, report.completed)
    assert.equal("closed", report.driver)
    assert.equal(4, report.max_concurrent_requests)
    assert.equal(4, report.connections)
    assert.is_true(report.client_gap.p50_ms < 0.5)
    local turns, firsts = {}, 0
    for _, row in ipairs(rows) do
      turns[row.user] = turns[row.user] or {}
      turns[row.user][#turns[row.user] + 1] = row.user_turn
      if row.gap_ms == cjson.null then firsts = firsts + 1 end
      assert.is_nil(row.due_at_ms)
    end
    assert.equal(4, firsts)
    for user = 0, 3 do
      for i, turn in ipairs(turns[user]) do assert.equal(i - 1, turn) end
    end
  end)

  it("replays the sessions of a recorded trace, each request after the answer before", function()
    local folder, lines = Fleet.new_folder(), {}
    for i = 1, 3 do
      local session = { session = "s" .. i, at_ms = 40 * i, input_tokens = 20, output_tokens = 2 }
      for turn = 1, 3 do
        lines[#lines + 1] = cjson.encode(session)
        session.at_ms, session.think_ms, session.input_tokens = nil, 100, 20 + turn
      end
    end
    Fleet.write(folder .. "/trace.jsonl", table.concat(lines, "\n") .. "\n")
    local replica = Replica.start({ script = stream })
    local run = Driver.start(replica.url, { "--trace", folder .. "/trace.jsonl", "--closed" })
    local report, rows = run:finish()
    Fleet.remove_folder(folder)
    assert.equal(9, report.completed, run.process:stderr())
    assert.equal("closed", report.driver)
    local gaps, turns = 0, {}
    for _, row in ipairs(rows) do
      turns[row.user] = (turns[row.user] or 0) + 1
      if row.gap_ms ~= cjson.null then
        gaps = gaps + 1
        assert.is_true(row.gap_ms >= 99, row.gap_ms)
      end
    end
    assert.equal(6, gaps)
    assert.same({ [0] = 3, 3, 3 }, turns)
  end)

  it("begins with its users in their order", function()
    local replica = Replica.start({ script = stream })
    local _, rows = Driver.run(replica.url, { "-u", "40", "-n", "40" })
    table.sort(rows, function(a, b) return a.user < b.user end)
    for i = 2, 40 do assert.is_true(rows[i].started_at_ms >= rows[i - 1].started_at_ms) end
  end)

  it("sends equal bytes for an equal seed, and others for another epoch", function()
    local replica = Replica.start({ script = stream })
    local function bodies(...)
      replica.exchanges = {}
      local report = Driver.run(replica.url, { "-u", "3", "-n", "3", ... })
      return sorted_bodies(replica), report
    end
    local one, first = bodies()
    local two, second = bodies()
    local other, third = bodies("-s", "epoch=1")
    assert.equal(3, #one)
    assert.same(one, two)
    assert.equal(first.body_hash, second.body_hash)
    assert.not_equal(first.body_hash, third.body_hash)
    assert.not_equal(first.workload, third.workload)
    for i = 1, 3 do
      assert.equal(#one[i], #other[i])
      assert.not_equal(one[i], other[i])
    end
    local decoded = cjson.decode(one[1])
    assert.equal("test-model", decoded.model) -- the endpoint's first
    assert.is_true(decoded.stream and decoded.stream_options.include_usage)
    assert.equal(64, decoded.max_tokens)
    local last = decoded.messages[#decoded.messages]
    assert.equal("user", last.role)
  end)

  it("goes on in a conversation: each turn begins with the one before", function()
    local replica = Replica.start({ script = stream })
    Driver.run("http://localhost:" .. replica.port .. "/v1/", { "-u", "1", "-n", "4",
      "--think", "0", "-s", "branch_share=0" })
    local session = replica.exchanges[1].request:header("x-session-id")
    assert.truthy(session)
    local before
    for turn = 1, 4 do
      local exchange = replica.exchanges[turn]
      local messages = cjson.decode(exchange.body).messages
      assert.equal(session, exchange.request:header("x-session-id"))
      for i = 1, before and #before or 0 do assert.same(before[i], messages[i]) end
      assert.equal(turn * 2 - 1, #messages - (messages[1].role == "system" and 1 or 0))
      before = messages
    end
  end)

  it("leaves out what begins in the warm-up", function()
    local replica = Replica.start({ script = stream })
    local report, rows = Driver.run(replica.url, { "-u", "2", "-d", "0.6", "--warmup", "0.3",
      "--think", "20" })
    local warm = 0
    for _, row in ipairs(rows) do
      assert.equal(row.started_at_ms < 300, row.warmup)
      if row.warmup then warm = warm + 1 end
    end
    assert.equal(warm, report.warmup_requests)
    assert.equal(#rows - warm, report.num_prompts)
    assert.is_true(warm > 4 and report.num_prompts > 4)
    assert.is_true(report.duration < 0.5)
  end)

  it("ends at a signal, with a report of what there is", function()
    local replica = Replica.start({ script = function(exchange)
      if #exchange.replica.exchanges <= 20 then stream(exchange) end -- the rest is never answered
    end })
    local run = Driver.start(replica.url, { "-u", "2", "-d", "600", "--think", "0" })
    loop.wait(function() return replica:count() == 22 end, 5, "22 requests")
    run.process:signal(signal.SIGINT)
    local report, rows, status = run:finish(3)
    assert.equal(130, status)
    assert.equal(20, report.completed)
    assert.equal(0, report.failed) -- we cut them ourselves
    assert.equal(2, report.cancelled)
    assert.same({ "interrupted" }, flags(report))
    assert.equal(22, #rows)
    assert.is_true(loop.try(function()
      for _, conn in ipairs(replica.connections) do
        if conn.fd and not conn.ended then return false end
      end
      return true
    end, 2))
  end)
end)

describe("a load against others' servers", function()
  after_each(finish)

  it("counts as the emulated engine's log does", function()
    local emulator = Emulator.start({ args = { "--prompt-tokens-details", "on" } })
    local report = Driver.run(emulator.urls[1], { "-u", "8", "-n", "60" })
    emulator:wait_idle()
    local requests, prompt, cached, output = 0, 0, 0, 0
    for _, entry in ipairs(emulator:log()) do
      if entry.method == "POST" then
        requests = requests + 1
        prompt = prompt + entry.prompt_tokens
        cached = cached + entry.cached_tokens
        output = output + entry.tokens
      end
    end
    assert.equal(60, requests)
    assert.equal(prompt, report.total_input_tokens)
    assert.equal(cached, report.cached_tokens)
    assert.equal(output, report.total_output_tokens)
  end)

  local NGINX = [[
daemon off;
master_process off;
worker_processes 1;
pid %s/nginx.pid;
error_log stderr error;
events { worker_connections 512; }
http {
  log_format counts '$status $body_bytes_sent $http_x_session_id';
  access_log %s/access.log counts;
  client_body_temp_path %s/t1; proxy_temp_path %s/t2; fastcgi_temp_path %s/t3;
  uwsgi_temp_path %s/t4; scgi_temp_path %s/t5;
  client_body_buffer_size 1m;
  server {
    listen 127.0.0.1:%d;
    root %s;
    default_type text/event-stream;
    error_page 405 =200 $uri;
  }
}
]]

  it("counts as nginx's log does, with a canned stream", function()
    if os.execute("command -v nginx >/dev/null 2>&1") ~= 0 then
      pending("nginx is not installed: scripts/setup --bench installs it")
      return
    end
    local folder = Fleet.new_folder()
    os.execute("mkdir -p " .. folder .. "/v1/chat && chmod 755 " .. folder)
    local words = {}
    for i = 1, 7 do
      words[i] = 'data: {"choices":[{"index":0,"delta":{"content":"w"}}]}\n\n'
    end
    Fleet.write(folder .. "/v1/chat/completions",
      table.concat(words) .. USAGE:format(7) .. "data: [DONE]\n\n")
    local fd, port = connection.listen(0)
    require("posix.unistd").close(fd)
    Fleet.write(folder .. "/nginx.conf", (NGINX:gsub("%%s", folder):gsub("%%d", port)))
    local nginx = process.start({ "nginx", "-c", folder .. "/nginx.conf", "-p", folder },
      { out = folder .. "/out", err = folder .. "/err" })
    loop.wait(function() return (connection.connect("127.0.0.1:" .. port)) end, 5, "nginx")
    local report, rows, status = Driver.run("http://127.0.0.1:" .. port,
      { "-u", "16", "-n", "500", "--model", "canned" })
    assert_done(status)
    nginx:signal(signal.SIGQUIT) -- finishes what it has, and its log
    loop.wait(function() return not nginx:alive() end, 5, "nginx to end")
    local requests, sent, sessions = 0, 0, {}
    for line in io.lines(folder .. "/access.log") do
      local code, body, session = line:match("^(%d+) (%d+) (%S+)$")
      if session and session ~= "-" then
        assert.equal("200", code)
        requests, sent = requests + 1, sent + body
        sessions[session] = (sessions[session] or 0) + 1
      end
    end
    Fleet.remove_folder(folder)
    local ours, bytes = {}, 0
    for _, row in ipairs(rows) do
      ours[row.session] = (ours[row.session] or 0) + 1
      bytes = bytes + row.response_bytes
    end
    assert.equal(500, report.completed)
    assert.equal(500, requests)
    assert.equal(3500, report.total_output_tokens)
    assert.equal(sent, bytes)
    local function counts(of)
      local list = {}
      for _, count in pairs(of) do list[#list + 1] = count end
      table.sort(list)
      return list
    end
    assert.same(counts(sessions), counts(ours))
  end)

  it("is asked what makes no sense: one line, and nothing is sent", function()
    local replica = Replica.start({ script = stream })
    for _, words in ipairs({
      { "-u", "3", "-r", "4" }, { "--closed" }, { "-r", "3", "--think", "5" }, { "-s", "rate=3" },
      { "-s", "nothing=1" }, { "-s", "users=many" }, { "--burstiness", "1" }, { "-g", "speed:3" },
      { "--percentiles", "101" }, { "--header", "no colon" }, { "-d", "3", "--warmup", "3" },
      { "--key-env", "KVR_NO_SUCH_VARIABLE" }, { "too", "many" },
    }) do
      local run = Driver.start(replica.url, words)
      local _, _, status = run:finish()
      assert.equal(2, status, table.concat(words, " "))
      assert.truthy(run.process:stderr():find("^kvroute load: [^\n]+\nkvroute load %-%-help"))
    end
    assert.equal(0, replica:count())
  end)

  it("has no address, no model, no file: one line, and a status", function()
    local replica = Replica.start()
    local run = Driver.start(replica.url, { "-n", "1", "--trace", "/no/such/file" })
    local _, _, status = run:finish()
    assert.equal(2, status)
    assert.truthy(run.process:stderr():find("/no/such/file", 1, true))
    replica.models = {}
    run = Driver.start(replica.url, { "-n", "1" })
    _, _, status = run:finish()
    assert.equal(1, status)
    assert.truthy(run.process:stderr():find("--model", 1, true))
  end)
end)
