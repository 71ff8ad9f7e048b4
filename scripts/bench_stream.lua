-- Event streams of 64 events: CPU an event at 20,000 events a second, and events a second when
-- nothing holds them back, against nginx (buffering off) and HAProxy (http-no-delay). The proxy has
-- core 0; wrk and the backend, which writes each event by itself, have core 1. Windows as in
-- bench_proxy.lua.
package.path = "scripts/?.lua;" .. package.path
local bench = require("kvroute.bench")
local peers = require("kvroute.peers")

local EVENTS = 64
local turns = tonumber(os.getenv("TURNS") or 4)
local quiet = tonumber(os.getenv("FOREIGN_MAX") or 0.10)

-- Events a second and CPU an event of each proxy, over quiet windows.
local function measure(arguments, connections)
  local backend, ports = peers.backend(1, 4, arguments)
  local proxies = { { name = "kvroute" }, { name = "nginx" }, { name = "haproxy" } }
  for _, proxy in ipairs(proxies) do
    if proxy.name == "kvroute" then
      proxy.pid, proxy.port = peers.kvroute(0, ports)
    else
      proxy.pid, proxy.port = peers[proxy.name](0, ports, { stream = true })
    end
    proxy.rates, proxy.costs, proxy.dropped = {}, {}, 0
  end
  local script = bench.wrk_script(1024, 64, true)
  local function events() return tonumber(bench.get(ports[1], "/events")) end

  local function turn(proxy)
    local wrk = bench.start(1, { "wrk", "-t1", "-c" .. connections, "-d4s", "-s", script,
      "http://127.0.0.1:" .. proxy.port .. "/" })
    bench.sleep(1.6)
    for _ = 1, 3 do
      local window = bench.window(0.6, { proxy.pid, backend, wrk }, events)
      if window.foreign <= quiet then
        proxy.rates[#proxy.rates + 1] = window.count / window.seconds
        proxy.costs[#proxy.costs + 1] = window.cpu[1] / window.count * 1e6
      else
        proxy.dropped = proxy.dropped + 1
      end
    end
    bench.finish(wrk)
  end

  local tries, least = 0
  repeat
    for _, proxy in ipairs(proxies) do turn(proxy) end
    tries = tries + 1
    least = math.huge
    for _, proxy in ipairs(proxies) do least = math.min(least, #proxy.rates) end
  until least >= turns * 2 or tries >= turns * 5
  for _, proxy in ipairs(proxies) do bench.stop(proxy.pid) end
  bench.stop(backend)
  return proxies
end

local function report(proxies, tag)
  bench.need_windows("stream", proxies)
  for _, proxy in ipairs(proxies) do
    bench.figure("stream", "events_per_s_" .. proxy.name .. tag, bench.median(proxy.rates), "1/s")
    bench.figure("stream", "cpu_us_per_event_" .. proxy.name .. tag, bench.median(proxy.costs),
      "us")
  end
end

bench.run(function()
  local paced = measure({ "--events", tostring(EVENTS), "--pace-us", "20000" }, 400)
  report(paced, "_paced")
  for i = 2, 3 do
    bench.figure("stream", "cpu_ratio_" .. paced[i].name,
      bench.median(paced[1].costs) / bench.median(paced[i].costs), "1")
  end
  local saturated = measure({ "--events", tostring(EVENTS) }, 64)
  report(saturated, "")
  for i = 2, 3 do
    bench.figure("stream", "ratio_" .. saturated[i].name,
      bench.median(saturated[1].rates) / bench.median(saturated[i].rates), "1")
  end
end)
