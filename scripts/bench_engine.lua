-- Emulated engines behind sockets: what a token costs the process that serves it, sockets and all.
-- Five replicas of h100-8b-bf16 with 512 sequences each, in one process on core 0, serve 2,000
-- streams at the engines' own pace; the clients have core 1.
package.path = "scripts/?.lua;" .. package.path
local cjson = require("cjson")
local bench = require("kvroute.bench")

local REPLICAS, STREAMS, TOKENS = 5, 400, 400 -- streams of each replica, tokens of each
local windows = tonumber(os.getenv("WINDOWS") or 3)
local quiet = tonumber(os.getenv("FOREIGN_MAX") or 0.10)

local function start_fleet()
  local fleet = bench.start(0, { bench.build .. "/kvroute", "fleet", "--profile", "h100-8b-bf16",
    "--replicas", tostring(REPLICAS), "--max-num-seqs", "512", "--port-base", "0",
    "--log-lines", "0" })
  for _ = 1, 100 do
    if bench.output(fleet):find("\nready\n") then break end
    bench.sleep(0.05)
  end
  local ports = {}
  for port in bench.output(fleet):gmatch("replica %d+ %S+:(%d+)\n") do
    ports[#ports + 1] = tonumber(port)
  end
  assert(#ports == REPLICAS, "the fleet did not start")
  return fleet, ports
end

-- Streams of a prompt each, one after another on each connection.
local function start_clients(ports)
  local body = cjson.encode({ model = "h100-8b-bf16", max_tokens = TOKENS, stream = true,
    messages = { { role = "user", content = bench.text(1200, 1) } } })
  local script = bench.write("streams.lua", ("wrk.method = 'POST'\nwrk.body = %q\n"
    .. "wrk.headers['Content-Type'] = 'application/json'\n"):format(body))
  local clients = {}
  for i, port in ipairs(ports) do
    clients[i] = bench.start(1, { "wrk", "-t1", "-c" .. STREAMS, "-d300s", "--timeout", "300s",
      "-s", script, ("http://127.0.0.1:%d/v1/chat/completions"):format(port) })
  end
  return clients
end

local function metrics(port)
  for _ = 1, 20 do -- it has much to do, at first most of all
    local page = bench.get(port, "/metrics")
    if page then return page end
  end
  error("no metrics from port " .. port)
end

-- Sum over all replicas of a series of their metrics pages.
local function total(ports, series)
  local sum = 0
  for _, port in ipairs(ports) do
    local page = metrics(port)
    sum = sum + tonumber(page:match("\n" .. series .. "[^ \n]* ([%d.e+]+)\n"))
  end
  return sum
end

bench.run(function()
  local fleet, ports = start_fleet()
  local clients = start_clients(ports)
  local function events() return total(ports, "kvroute_emulator_events_total") end
  local pids = { fleet, unpack(clients) }
  repeat bench.sleep(0.5) until
    total(ports, "vllm:num_requests_running") >= REPLICAS * STREAMS * 0.99
  bench.sleep(5) -- in step no longer
  local best, rate, running = math.huge, 0, 0
  local good, tries = 0, 0
  repeat
    local window = bench.window(4, pids, events)
    tries = tries + 1
    if window.foreign <= quiet then
      good = good + 1
      best = math.min(best, window.cpu[1] / window.count * 1e6)
      rate = window.count / window.seconds
      running = total(ports, "vllm:num_requests_running")
    end
  until good == windows or tries == windows * 5
  local late = metrics(ports[1]):match('lateness_seconds{quantile="0.99"} ([%d.e-]+)')
  bench.figure("engine", "cpu_us_per_event", best, "us")
  bench.figure("engine", "events_per_s", rate, "1/s")
  bench.figure("engine", "streams", running, "1")
  bench.figure("engine", "late_p99_us", tonumber(late) * 1e6, "us")
end)
