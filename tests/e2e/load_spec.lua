-- kvroute load against endpoints whose every byte and delay is known: its figures are right, and
-- they are what others count.
local cjson = require("cjson")
local signal = require("posix.signal")
local connection = require("e2e.support.connection")
local Driver = require("e2e.support.driver")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")
local Target = require("e2e.support.target")

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
  after_each(Target.finish)

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
      exchange:chunk(Target.USAGE:format(#plan))
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
      loop.after(slow and 0.2 or 0.02, function() Target.stream(exchange) end)
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
    local replica = Replica.start({ script = Target.stream })
    local text, _, status = Driver.run(replica.url, { "-u", "2", "-n", "10", "-g", "ttft:990" },
      { text = true })
    Target.assert_done(status)
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

describe("a load against others' servers", function()
  after_each(Target.finish)

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
      table.concat(words) .. Target.USAGE:format(7) .. "data: [DONE]\n\n")
    local fd, port = connection.listen(0)
    require("posix.unistd").close(fd)
    Fleet.write(folder .. "/nginx.conf", (NGINX:gsub("%%s", folder):gsub("%%d", port)))
    local nginx = process.start({ "nginx", "-c", folder .. "/nginx.conf", "-p", folder },
      { out = folder .. "/out", err = folder .. "/err" })
    loop.wait(function() return (connection.connect("127.0.0.1:" .. port)) end, 5, "nginx")
    local report, rows, status = Driver.run("http://127.0.0.1:" .. port,
      { "-u", "16", "-n", "500", "--model", "canned" })
    Target.assert_done(status)
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
    local replica = Replica.start({ script = Target.stream })
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
