-- Memory: idle, with 10,000 idle keep-alive connections, and with 4,000 concurrent streams beside
-- them; whether any event was lost; and how long a cold start takes. The streams' beliefs are in.
package.path = "scripts/?.lua;" .. package.path
local cjson = require("cjson")
local bench = require("kvroute.bench")
local peers = require("kvroute.peers")

local IDLE = tonumber(os.getenv("IDLE") or 10000)
local STREAMS = tonumber(os.getenv("STREAMS") or 4000)
local EVENTS = 64

local function cold_start(ports)
  local best = math.huge
  for _ = 1, 5 do
    local began = bench.now()
    local pid = bench.start(0, { bench.build .. "/kvroute", "serve", "-l", "127.0.0.1:0", "-s",
      "admin.listen=127.0.0.1:0", "-r", "http://127.0.0.1:" .. ports[1] })
    local port = peers.kvroute_ports(pid)
    while not bench.get(port, "/healthz") do bench.sleep(0.0005) end
    best = math.min(best, bench.now() - began)
    bench.stop(pid)
  end
  return best * 1000
end

bench.run(function()
  local _, ports = peers.backend(1, 4, { "--events", tostring(EVENTS), "--pace-us", "250000" })
  bench.figure("memory", "cold_start_ms", cold_start(ports), "ms")
  local pid, port, admin = peers.kvroute(0, ports, { "limits.connections=18000" })
  bench.sleep(0.5)
  local idle_rss = bench.rss_mb(pid)
  bench.figure("memory", "rss_idle_mb", idle_rss, "MB")

  local hold = bench.start(1, { bench.build .. "/bench_hold", tostring(port), "--idle",
    tostring(IDLE), "--streams", tostring(STREAMS), "--events", tostring(EVENTS) })
  local function await(line)
    for _ = 1, 2400 do
      if bench.output(hold):find(line, 1, true) then return end
      bench.sleep(0.05)
    end
    error("bench_hold did not say " .. line .. ": " .. bench.output(hold, "err"))
  end
  await("idle")
  local with_idle = bench.rss_mb(pid)
  bench.figure("memory", "bytes_per_idle", (with_idle - idle_rss) * 2 ^ 20 / IDLE, "B")
  await("streaming")
  local with_streams = bench.rss_mb(pid)
  bench.figure("memory", "rss_streams_mb", with_streams, "MB")
  bench.figure("memory", "bytes_per_stream", (with_streams - with_idle) * 2 ^ 20 / STREAMS, "B")
  local code, out = bench.finish(hold)
  local counts = cjson.decode(out:match("{.*}"))
  bench.figure("memory", "lost_events", STREAMS * EVENTS - counts.events, "1")
  bench.figure("memory", "errors", (STREAMS - counts.whole) + (IDLE - counts.idle_open) + code, "1")
  bench.sleep(0.5)
  local status = cjson.decode(bench.get(admin, "/admin/status"))
  bench.figure("memory", "in_flight_after", status.replicas.in_flight, "1")
end)
