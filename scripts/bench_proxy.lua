-- kvroute against nginx and HAProxy: requests a second that one core carries, and CPU a request.
--
-- The proxy has core 0; wrk (64 connections) and a backend that costs little have core 1. Proxies
-- take turns; a turn starts one anew, because a process keeps the luck it had with its memory, and
-- is one run of wrk with three windows in it; a window in which others used more than 10 % of the
-- machine does not count. Ratios are of medians over the windows that do.
--
-- kvroute has prefix_affinity in force and writes rows; HAProxy has http-no-delay. Beside them are
-- nginx and HAProxy when they write a line a request, too, and a relay that looks at nothing it
-- passes on: what it costs no proxy can save, and what it carries is what core 1 can ask for.
package.path = "scripts/?.lua;" .. package.path
local bench = require("kvroute.bench")
local peers = require("kvroute.peers")

local turns = tonumber(os.getenv("TURNS") or 8)
local quiet = tonumber(os.getenv("FOREIGN_MAX") or 0.10)

local function contestants()
  return {
    { name = "kvroute", start = peers.kvroute },
    { name = "nginx", start = peers.nginx },
    { name = "haproxy", start = peers.haproxy },
    { name = "nginx_logging", start = peers.nginx, options = { logs = true } },
    { name = "haproxy_logging", start = peers.haproxy, options = { logs = true } },
    { name = "relay", start = peers.relay },
  }
end

local function measure(bytes)
  local backend, ports = peers.backend(1, 4)
  local proxies = contestants()
  for _, proxy in ipairs(proxies) do
    proxy.rates, proxy.costs, proxy.dropped = {}, {}, 0
  end
  local script = bench.wrk_script(bytes, 256)
  local function served() return tonumber(bench.get(ports[1], "/count")) end

  local function turn(proxy)
    local pid, port = proxy.start(0, ports, proxy.options)
    local wrk = bench.start(1, { "wrk", "-t1", "-c64", "-d2s", "-s", script,
      "http://127.0.0.1:" .. port .. "/" })
    bench.sleep(0.5)
    for _ = 1, 3 do
      local window = bench.window(0.3, { pid, backend, wrk }, served)
      if window.foreign <= quiet then
        proxy.rates[#proxy.rates + 1] = window.count / window.seconds
        proxy.costs[#proxy.costs + 1] = window.cpu[1] / window.count * 1e6
      else
        proxy.dropped = proxy.dropped + 1
      end
    end
    local _, out = bench.finish(wrk)
    assert(not out:find("Non%-2xx") and not out:find("Socket errors"), out)
    bench.stop(pid)
  end

  local tries = 0
  repeat
    for _, proxy in ipairs(proxies) do turn(proxy) end
    tries = tries + 1
    local least = math.huge
    for _, proxy in ipairs(proxies) do least = math.min(least, #proxy.rates) end
  until least >= turns * 2 or tries >= turns * 5
  bench.stop(backend)
  return proxies
end

bench.run(function()
  for _, size in ipairs { { bytes = 2048, tag = "" }, { bytes = 8192, tag = "_8k" } } do
    local proxies = measure(size.bytes)
    bench.need_windows("proxy", proxies)
    local ours = proxies[1]
    for _, proxy in ipairs(proxies) do
      local name = proxy.name .. size.tag
      proxy.rate, proxy.cost = bench.median(proxy.rates), bench.median(proxy.costs)
      bench.figure("proxy", "requests_per_s_" .. name, proxy.rate, "1/s")
      bench.figure("proxy", "cpu_us_" .. name, proxy.cost, "us")
      bench.figure("proxy", "windows_" .. name, #proxy.rates, "1")
    end
    for i = 2, #proxies do
      local name = proxies[i].name .. size.tag
      bench.figure("proxy", "ratio_" .. name, ours.rate / proxies[i].rate, "1")
      bench.figure("proxy", "cpu_ratio_" .. name, ours.cost / proxies[i].cost, "1")
    end
  end
end)
