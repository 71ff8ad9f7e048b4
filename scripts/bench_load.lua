-- What one core of the load driver carries: requests a second, and streams at once, each with a p99
-- of lateness of at most 5 ms. The driver has core 0, a backend that costs little core 1. Runs in
-- which others used more than 10 % of the machine do not count; of those that do, the best.
--
--   requests_per_s      open loop, answers of 300 bytes, prompts of 5 KB in the mean: the highest
--                       rate of the ladder that was kept
--   lateness_p99_ms     with 4,000 streams open, an event of each every 50 ms; and cpu_share there
--   streams             the most of the ladder that kept to the 5 ms
package.path = "scripts/?.lua;" .. package.path
local cjson = require("cjson")
local bench = require("kvroute.bench")
local peers = require("kvroute.peers")

local LATE_MS = 5
local RATES = { 8000, 16000, 32000, 48000, 64000 }
local STREAMS = { 4000, 8000, 12000 }
local EVENTS, PACE_MS = 100, 50 -- a stream takes 5 s
local TRIES, GOOD = tonumber(os.getenv("TRIES") or 12), tonumber(os.getenv("RUNS") or 3)
local quiet = tonumber(os.getenv("FOREIGN_MAX") or 0.10)

-- One run; nil when others disturbed it.
local function drive(backend, port, rate, seconds, arguments)
  local argv = { bench.build .. "/kvroute", "load", "http://127.0.0.1:" .. port, "--json",
    "--quiet", "--model", "bench", "--rate", tostring(rate), "-d", tostring(seconds) }
  for _, argument in ipairs(arguments) do argv[#argv + 1] = argument end
  local load = bench.start(0, argv)
  local window = bench.window(seconds - 0.2, { load, backend }, function() return 0 end)
  local _, out = bench.finish(load)
  if window.foreign > quiet then return nil end
  local report = cjson.decode(out)
  assert(report.failed == 0, out)
  return report
end

-- The run of the least lateness among the undisturbed ones.
local function best(...)
  local found, good = nil, 0
  for _ = 1, TRIES do
    local report = drive(...)
    if report then
      good = good + 1
      if not found or report.lateness.p99_ms < found.lateness.p99_ms then found = report end
      if good == GOOD then break end
    end
  end
  return found
end

local function kept(report)
  return report and report.lateness.p99_ms <= LATE_MS
end

local function requests()
  local backend, ports = peers.backend(1, 1)
  local highest = 0
  for _, rate in ipairs(RATES) do
    local report = best(backend, ports[1], rate, 3, { "--warmup", "1", "--no-stream" })
    if not kept(report) then break end
    highest = report.request_throughput
  end
  bench.stop(backend)
  bench.figure("load", "requests_per_s", highest, "1/s")
end

local function streams()
  local backend, ports = peers.backend(1, 1, { "--events", tostring(EVENTS), "--pace-us",
    tostring(PACE_MS * 1000) })
  local most = 0
  for _, count in ipairs(STREAMS) do
    local rate = count / (EVENTS * PACE_MS * 1e-3)
    local report = best(backend, ports[1], rate, 9, { "--warmup", "5.5" })
    if report and count == STREAMS[1] then
      bench.figure("load", "lateness_p99_ms", report.lateness.p99_ms, "ms")
      bench.figure("load", "cpu_share", report.cpu_share, "1")
    end
    if not kept(report) then break end
    most = report.max_concurrent_requests
  end
  bench.stop(backend)
  bench.figure("load", "streams", most, "1")
end

bench.run(function()
  requests()
  streams()
end)
