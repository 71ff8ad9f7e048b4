-- Emulated engines behind sockets: what a token costs the process that serves it, sockets and all.
-- Five replicas of h100-8b-bf16 with 512 sequences each, in one process on core 0, serve 2,000
-- streams at the engines' own pace. Their client has core 1 and reads in rounds (bench_streams), so
-- that the cost of waking it for each token is not on the server's bill.
package.path = "scripts/?.lua;" .. package.path
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

local function start_clients(ports)
  local argv = { bench.build .. "/bench_streams", "--streams", tostring(STREAMS), "--tokens",
    tostring(TOKENS) }
  for _, port in ipairs(ports) do argv[#argv + 1] = tostring(port) end
  return bench.start(1, argv)
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
  local pids = { fleet, clients }
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
