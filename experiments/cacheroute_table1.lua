-- Question  What does a plan of routing keys buy thirty 70B engines (Table 1, Figure 2 and the 2-s
--           limit of CacheRoute)?
-- Method    128 keys with 42 variants each ("reconstructed workload": the paper does not state its
--           request's shape), Poisson arrivals at each rate of its ladder, from cold caches;
--           16,000 requests to warm up, 5,000 measured, clients wait 30 s. The plan has five slots
--           for each engine and the true rates. Capacity is the highest rate whose p99 of the
--           first token, time-outs included, is within the limit and of whose requests at most
--           5 % fail, for each seed. The ring has 4 virtual nodes an engine.
-- Seed      2 to 6, as the paper
-- Run       kvroute run experiments/cacheroute_table1.lua --results
--             experiments/results/cacheroute_table1
-- Takes     2 minutes on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local set = lab.settings {
  keys = 128, slots = cacheroute.SLOTS, gap_cv = 1,
  rates = cacheroute.RATES_70B, -- rising
  common = 100, -- requests a second at which the paper shows p99; one of them
}

local paper = {
  hit = { p2c = "64.1 %", session_affinity = "87.3 %", bounded_session_affinity = "75.6 %",
    dualmap = "88.7 %", preble_cap = "72.0 %", cacheroute = "93.2 %" },
  tight = { p2c = "<30", session_affinity = "<30", bounded_session_affinity = "<30",
    dualmap = "<30", preble_cap = "<30", cacheroute = "120" },
  knee = { p2c = "42 +- 20", session_affinity = "30", bounded_session_affinity = "64 +- 11",
    dualmap = "58 +- 22", preble_cap = "76 +- 11", cacheroute = "176 +- 11" },
  loose = { p2c = "80", session_affinity = "42 +- 20", bounded_session_affinity = "128 +- 14",
    dualmap = "84 +- 32", preble_cap = "140", cacheroute = "180" },
  p99 = { p2c = "5.7 s", session_affinity = "8.5 s", bounded_session_affinity = "3.8 s",
    dualmap = "5.3 s", preble_cap = "3.8 s", cacheroute = "1.8 s" },
}

local function common(found, policy)
  return found:find(policy, { rate = set.common })
    or error("--set common is not among the rates", 0)
end

-- "1.8 s": a p99 that more than a hundredth misses is none.
local function p99(pool)
  local value = pool:value("ttft_p99_all_ms")
  return value ~= value and "never" or ("%.1f s"):format(value / 1000)
end

local function report(found)
  local columns = {
    { title = "capacity\n@2 s", limit_ms = 2000, paper = paper.tight },
    { title = "capacity\n@3.5 s", limit_ms = 3500, paper = paper.knee },
    { title = "capacity\n@5 s", limit_ms = 5000, paper = paper.loose },
  }
  local out, at = cacheroute.capacities(found, columns), ("@%g/s"):format(set.common)
  table.insert(out.head, 2, "hit rate\n" .. at)
  table.insert(out.head, "TTFT p99\n" .. at)
  table.insert(out.head, "busiest\n/mean")
  for i, policy in ipairs(found:policies()) do
    local pool, row = common(found, policy), out.rows[i]
    table.insert(row, 2, cacheroute.beside(pool:shown("hit_rate"), paper.hit[policy]))
    row[#row + 1] = cacheroute.beside(p99(pool), paper.p99[policy])
    row[#row + 1] = pool:shown("imbalance")
  end
  return cacheroute.text(out)
end

-- ---- Figure 2 ----

local measured = { -- mean and half the interval, as the paper's figure has them
  p99 = { p2c = 5.7, session_affinity = 8.5, bounded_session_affinity = 3.8, dualmap = 5.3,
    preble_cap = 3.8, cacheroute = 1.8 },
  knee = { p2c = { 42, 20 }, session_affinity = { 30, 0 }, bounded_session_affinity = { 64, 11 },
    dualmap = { 58, 22 }, preble_cap = { 76, 11 }, cacheroute = { 176, 11 } },
}

local function bars(found, title, label, values)
  local series = {}
  for i, policy in ipairs(found:policies()) do
    series[i] = { name = policy, label = cacheroute.titles[policy], values = values(policy) }
  end
  return { kind = "bars", title = title, note = "Reconstructed workload, emulated engines",
    x = { label = "" }, y = { label = label }, groups = { "here", "the paper" }, series = series }
end

local function figures(found)
  return {
    p99 = bars(found, ("First token at %g requests a second"):format(set.common),
      "time to first token, p99 (s)", function(policy)
        local pool = common(found, policy)
        local value, least, most = pool:value("ttft_p99_all_ms"), pool:range("ttft_p99_all_ms")
        return {
          value == value and { y = value / 1000, low = least / 1000, high = most / 1000 },
          measured.p99[policy] and { y = measured.p99[policy] } or false,
        }
      end),
    capacity = bars(found, "Capacity within 3.5 s", "requests a second", function(policy)
      local ours, theirs = capacity.of(found, policy, nil, 3500), measured.knee[policy]
      local half = ours.half == ours.half and ours.half or 0
      return {
        { y = ours.mean, low = math.max(0, ours.mean - half), high = ours.mean + half },
        theirs and { y = theirs[1], low = theirs[1] - theirs[2], high = theirs[1] + theirs[2] }
          or false,
      }
    end),
  }
end

return cacheroute.experiment {
  name = "cacheroute_table1",
  question = "what does a plan of routing keys buy thirty 70B engines?",
  profile = cacheroute.PROFILE_70B,
  rates = set.rates, all = true,
  ask = { keys = set.keys, gap_cv = set.gap_cv },
  router = { plan_slots = set.slots },
  seeds = 5,
  report = report,
  figures = figures,
}
