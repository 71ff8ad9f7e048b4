-- Prompts of 220 KB with prefix_affinity in force: requests a second on one core, and the
-- first-byte time added at half that rate, against the backend alone. Best of three quiet windows.
package.path = "scripts/?.lua;" .. package.path
local cjson = require("cjson")
local bench = require("kvroute.bench")
local paced = require("kvroute.paced")
local peers = require("kvroute.peers")

local BYTES = 220000
local quiet = tonumber(os.getenv("FOREIGN_MAX") or 0.10)
local settings = {}
for setting in (os.getenv("KVR_SET") or ""):gmatch("%S+") do settings[#settings + 1] = setting end

bench.run(function()
  local backend, ports = peers.backend(1, 4)
  local pid, port = peers.kvroute(0, ports, settings)
  local script = bench.wrk_script(BYTES, 64)
  local function served() return tonumber(bench.get(ports[1], "/count")) end

  local best, cost = 0, 0
  local good, tries = 0, 0
  while good < 3 and tries < 20 do
    tries = tries + 1
    local wrk = bench.start(1, { "wrk", "-t1", "-c16", "-d2s", "-s", script,
      "http://127.0.0.1:" .. port .. "/" })
    bench.sleep(0.7)
    local window = bench.window(0.8, { pid, backend, wrk }, served)
    bench.finish(wrk)
    if window.foreign <= quiet then
      good = good + 1
      local rate = window.count / window.seconds
      if rate > best then best, cost = rate, window.cpu[1] / window.count * 1e6 end
    end
  end
  if good == 0 then
    bench.fail("big: no valid window: in all " .. tries .. " others used too much of the machine")
  end
  bench.figure("big", "requests_per_s", best, "1/s")
  bench.figure("big", "cpu_us", cost, "us")

  local function client(to)
    local process = bench.start(1, paced.argv(bench.build .. "/kvroute", "http://127.0.0.1:" .. to,
      { rate = math.floor(best / 2), seconds = 3, bytes = BYTES, prompts = 64 }))
    local _, out = bench.finish(process)
    return cjson.decode(out)
  end
  local best_ms = { alone = {}, through = {} }
  for _ = 1, 3 do
    for way, to in pairs { alone = ports[1], through = port } do
      local measured = client(to)
      assert(measured.failed == 0, "requests failed")
      for _, quantile in ipairs { "p50", "p99" } do
        local ms = measured[quantile .. "_e2el_ms"]
        best_ms[way][quantile] = math.min(best_ms[way][quantile] or math.huge, ms)
      end
    end
  end
  for _, quantile in ipairs { "p50", "p99" } do
    local added = best_ms.through[quantile] - best_ms.alone[quantile]
    bench.figure("big", "added_" .. quantile .. "_ms", added, "ms")
  end
end)
