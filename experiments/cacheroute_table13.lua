-- Question  How sensitive is the plan to its load target and to the skew of keys (Table 13 of
--           CacheRoute)?
-- Method    8B engines, 128 keys ("reconstructed workload"). The target of a copy's load, q_cap,
--           50, 100, 200 and 500 requests a second, under the usual weights, of which the largest
--           makes 10 requests a second at most: no key is ever split, and equal figures show that
--           the plan is the same. Then eight keys that share 5 to 45 % of the traffic, with a
--           target of 8 and 240 slots.
-- Seed      2 to 4, as the paper
-- Run       kvroute run experiments/cacheroute_table13.lua --results
--             experiments/results/cacheroute_table13
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")

local COMMON = 160 -- where hit rates are read

local settings = {
  { "q_cap 50", q_cap = 50, paper = { "89 %", "57 %", "360", "1.50x" } },
  { "q_cap 100", q_cap = 100, paper = { "91 %", "57 %", "360", "1.50x" } },
  { "q_cap 200", q_cap = 200, paper = { "91 %", "57 %", "360", "1.50x" } },
  { "q_cap 500", q_cap = 500, paper = { "91 %", "57 %", "360", "1.50x" } },
  { "5 % head", share = 0.05, paper = { "89 %", "56 %", "500", "3.12x" } },
  { "15 % head", share = 0.15, paper = { "89 %", "56 %", "500", "2.08x" } },
  { "25 % head", share = 0.25, paper = { "89 %", "57 %", "500", "2.08x" } },
  { "45 % head", share = 0.45, paper = { "89 %", "59 %", "500", "2.08x" } },
}

local by_name, names = {}, {}
for i, setting in ipairs(settings) do
  names[i], by_name[setting[1]] = setting[1], setting
end

local function report(found)
  local rows = {}
  for i, setting in ipairs(settings) do
    local at, there = { setting = setting[1] }, setting.paper
    local row, ours = { setting[1] }, {}
    for j, policy in ipairs({ "cacheroute", "p2c" }) do
      local pool = found:find(policy, { setting = setting[1], rate = COMMON })
      ours[j] = capacity.of(found, policy, at, cacheroute.LIMIT_MS)
      row[j + 1] = cacheroute.beside(pool:shown("hit_rate"), there[j])
    end
    row[4] = cacheroute.beside(capacity.text(ours[1]), there[3])
    row[5] = capacity.text(ours[2])
    row[6] = cacheroute.beside(capacity.ratio(ours[1], ours[2]), there[4])
    rows[i] = row
  end
  local hit = ("hit rate @%d/s\n%%s"):format(COMMON)
  return cacheroute.text({ rows = rows, head = { "setting", hit:format("CacheRoute"),
    hit:format("Flat-LB"), "capacity\nCacheRoute", "\nFlat-LB", "ratio" } })
end

return cacheroute.experiment {
  name = "cacheroute_table13",
  question = "how sensitive is the plan to its load target and to the skew of keys?",
  axes = { { "setting", unpack(names) } },
  profile = cacheroute.PROFILE_8B,
  rates = cacheroute.RATES_8B,
  policies = cacheroute.two,
  ask = function(at)
    local share = by_name[at.setting].share
    return share and { whales = 8, whale_share = share } or {}
  end,
  router = function(at)
    local q_cap = by_name[at.setting].q_cap
    return q_cap and { plan_q_cap = q_cap } or { plan_q_cap = 8, plan_slots = 8 }
  end,
  report = report,
}
