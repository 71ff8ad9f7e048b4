-- Question  Does the plan need smooth arrivals (Tables 10 and 11 of CacheRoute)?
-- Method    As Table 1, two choices against the plan, under three kinds of arrivals at the same
--           mean rate: Poisson; Gamma gaps with a variation of 1.9; and a moving-block bootstrap,
--           blocks of 50 successive gaps out of 22,639, drawn at random. The paper's gaps are not
--           published. Ours are made up: exponential, at a rate that wanders (a lognormal process
--           with a correlation of 0.98 from gap to gap), so that their variation is near the
--           2.73 of the paper. "Reconstructed workload".
-- Seed      2 to 6, as the paper
-- Run       kvroute run experiments/cacheroute_arrivals.lua --results
--             experiments/results/cacheroute_arrivals
-- Takes     2 minutes on two cores
local cacheroute = require("kvroute.cacheroute")
local lab = require("kvroute")

local GAPS, BLOCK, SPREAD, MEMORY = 22639, 50, 1.2005, 0.98
local COMMON = 60 -- where hit rates are read

-- Times of a series of such gaps, in units of their mean, to three digits: the last bits of log and
-- exp are not the same on all machines.
local function bursty_times()
  math.randomseed(20260801)
  local function normal()
    return math.sqrt(-2 * math.log(1 - math.random())) * math.cos(2 * math.pi * math.random())
  end
  local out, level, at = { 0 }, 0, 0
  for i = 1, GAPS do
    level = MEMORY * level + math.sqrt(1 - MEMORY ^ 2) * SPREAD * normal()
    at = at - math.log(1 - math.random()) * math.exp(level)
    out[i + 1] = math.floor(at * 1000 + 0.5) / 1000
  end
  return out
end

local function variation(times)
  local gaps = {}
  for i = 2, #times do gaps[i - 1] = times[i] - times[i - 1] end
  return lab.stats.deviation(gaps) / lab.stats.mean(gaps)
end

local times = bursty_times()

local kinds = {
  { name = "Poisson", options = {} },
  { name = "Gamma, CV 1.9", options = { gap_cv = 1.9 } },
  { name = "blocks", options = { times_ms = times, bootstrap = true, block_len = BLOCK } },
}

-- Of Table 10, and of Table 11 where it has another sweep.
local paper = {
  p2c = { { "30, 60", "64, 66 %" }, { "30, 60", "63, 66 %" }, { "<30", "67 %" } },
  cacheroute = { { "180, 180", "94, 93 %" }, { "160, 180", "90, 93 %" }, { "180", "93 %" } },
}

local function report(found)
  local columns = {}
  for i, kind in ipairs(kinds) do
    columns[i] = { title = kind.name .. "\n@3.5 s", at = { arrivals = kind.name }, paper = {} }
    for policy, there in pairs(paper) do columns[i].paper[policy] = there[i][1] end
  end
  local out = cacheroute.capacities(found, columns)
  for i, policy in ipairs(found:policies()) do
    for j, kind in ipairs(kinds) do
      local pool = found:find(policy, { arrivals = kind.name, rate = COMMON })
      out.head[4 + j] = ("hit rate\n%s"):format(kind.name)
      out.rows[i][4 + j] = cacheroute.beside(pool:shown("hit_rate"), paper[policy][j][2])
    end
  end
  return cacheroute.text(out, ("Hit rates at %d requests a second. The series of gaps has a "
    .. "variation of %.2f."):format(COMMON, variation(times)))
end

return cacheroute.experiment {
  name = "cacheroute_arrivals",
  question = "does the plan need smooth arrivals?",
  axes = { { "arrivals", kinds[1].name, kinds[2].name, kinds[3].name } },
  profile = cacheroute.PROFILE_70B,
  rates = cacheroute.RATES_70B,
  policies = cacheroute.two,
  ask = function(at)
    for _, kind in ipairs(kinds) do
      if kind.name == at.arrivals then return kind.options end
    end
  end,
  seeds = 5,
  report = report,
}
