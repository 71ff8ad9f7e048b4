-- Question  Do engines behind real sockets give what the simulator gives?
-- Method    The same cells twice: under virtual time, and as processes on the loopback, 20
--           simulated seconds a second. Working set 1, without and with skew. Both fleets have the
--           same addresses, so that sessions are hashed to the same replicas.
-- Seed      1
-- Run       kvroute run experiments/live.lua        nothing else may use the machine
-- Takes     3 minutes on two cores
local lab = require("kvroute")

local set = lab.settings { scale = 20, seconds = 300, port = 18150 }
local REPLICAS = 5

local authorities = {}
for i = 1, REPLICAS do authorities[i] = ("127.0.0.1:%d"):format(set.port + i - 1) end

local fleets = {
  simulated = lab.fleet.simulated {
    profile = "rtx3090-8b-awq", replicas = REPLICAS, authorities = table.concat(authorities, " "),
  },
  emulated = lab.fleet.emulated {
    profile = "rtx3090-8b-awq", replicas = REPLICAS, port = set.port, time_scale = set.scale,
  },
}

-- How far the live fleet is from the simulated one: goodput in percent, shares in points.
local function report(found)
  local rows = {}
  for _, pool in ipairs(found.pools) do
    if pool.at.fleet == "simulated" then
      local live = found:find(pool.policy, { fleet = "emulated", skew = pool.at.skew })
      local function points(name)
        return ("%+.1f"):format(100 * (live:value(name) - pool:value(name)))
      end
      rows[#rows + 1] = {
        pool.policy, pool.at.skew, pool:shown("goodput"), live:shown("goodput"),
        ("%+.1f %%"):format(100 * (live:value("goodput") / pool:value("goodput") - 1)),
        pool:shown("hit_rate"), live:shown("hit_rate"), points("hit_rate"), points("spill_rate"),
      }
    end
  end
  return lab.table.text {
    head = {
      "policy", "skew", "goodput/s\nsimulated", "\nlive", "\ndifference", "cached\nsimulated",
      "\nlive", "\npoints", "spilled\npoints",
    },
    rows = rows,
  }
end

return lab.experiment {
  name = "live",
  question = "do engines behind real sockets give what the simulator gives?",
  axes = { { "fleet", "simulated", "emulated" }, { "skew", 0, 1.4 } },
  fleet = function(at) return fleets[at.fleet] end,
  router = lab.router.study,
  workload = function(at)
    return lab.workload.kvroute { working_set = 1, skew = at.skew, users = 32 }
  end,
  policies = { "round_robin", "least_outstanding", "session_affinity", "prefix_affinity" },
  measure = { seconds = set.seconds, warmup_s = set.seconds / 6 },
  slo = { ttft_ms = 990, itl_ms = 24 },
  seeds = 1,
  ignore = { "cold opening", "fleet slowed" }, -- as in hello.lua
  report = report,
}
