-- Question  Where does affinity win, tie and lose (Tables 5 and 15 of CacheRoute)?
-- Method    Two choices against the plan, on requests that differ in how much a key's own prefix is
--           of the prompt ("reconstructed workload"; lengths are chosen so that the hit rates come
--           near the paper's, capacities follow):
--             8B whales   eight of 128 keys share 45 %; 6,000 of 7,680 tokens are one of the key's
--                         16 variants. At most 3 requests a second a copy, 360 slots.
--             32B A       300 keys, 1,090 of 10,000 tokens; 110 for all; answers of 128
--             32B B       300 keys, 820 of 10,000 tokens; 80 for all; answers of 128
--             32B flipped as A, but 6,000 tokens are the key's and 3,000 new
--           The plan of 32B has room for all keys. 32B: 3,000 requests to warm up.
-- Seed      2 to 5
-- Run       kvroute run experiments/cacheroute_regimes.lua --results
--             experiments/results/cacheroute_regimes
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local set = lab.settings { regimes = { "8B whales", "32B A", "32B B", "32B flipped" } }

local function of_32b(options)
  options.keys, options.context_tokens, options.variants, options.output_tokens = 300, 0, 1, 128
  return options
end

local regimes = {
  ["8B whales"] = {
    profile = cacheroute.PROFILE_8B, common = 60,
    router = { plan_slots = 12, plan_q_cap = 3 },
    ask = { whales = 8, whale_share = 0.45, template_tokens = 500, variant_tokens = 6000,
      unique_tokens = 1000, variants = 16 },
    paper = { hit = { "9.3 %", "77.0 %" }, ratio = "2 to 6x" },
  },
  ["32B A"] = {
    common = 10,
    ask = of_32b { template_tokens = 110, variant_tokens = 1090, unique_tokens = 8800 },
    paper = { hit = { "1.1 %", "11.8 %" }, knee = { "20", "10" }, loose = { "30", "20" },
      ratio = "0.50x" },
  },
  ["32B B"] = {
    common = 10,
    ask = of_32b { template_tokens = 80, variant_tokens = 820, unique_tokens = 9100 },
    paper = { hit = { "0.8 %", "8.5 %" }, loose = { "20", "20" }, ratio = "1.0x @5 s" },
  },
  ["32B flipped"] = {
    common = 10,
    ask = of_32b { template_tokens = 110, variant_tokens = 6000, unique_tokens = 3000 },
    paper = {},
  },
}

local function of(at)
  return regimes[at.regime] or error("there is no regime " .. at.regime, 0)
end

local function row(found, name)
  local regime, at = regimes[name], { regime = name }
  local there = regime.paper
  local out = { name }
  local ours = { hit = {}, knee = {}, loose = {} }
  for i, policy in ipairs(cacheroute.two) do
    local pool = found:find(policy, { regime = name, rate = regime.common })
    out[1 + i] = cacheroute.beside(pool:shown("hit_rate"), (there.hit or {})[i])
    for j, limit in ipairs({ "knee", "loose" }) do
      local limit_ms = limit == "knee" and cacheroute.LIMIT_MS or 5000
      ours[limit][i] = capacity.of(found, policy, at, limit_ms)
      out[1 + 2 * j + i] = cacheroute.beside(capacity.text(ours[limit][i]), (there[limit] or {})[i])
    end
  end
  out[8] = cacheroute.beside(capacity.ratio(ours.knee[2], ours.knee[1]), there.ratio)
  out[9] = capacity.ratio(ours.loose[2], ours.loose[1])
  out[10] = capacity.difference(ours.knee[2], ours.knee[1])
  out[11] = capacity.difference(ours.loose[2], ours.loose[1])
  return out
end

local function report(found)
  local rows = {}
  for i, name in ipairs(set.regimes) do rows[i] = row(found, name) end
  return cacheroute.text({ rows = rows, head = { "regime", "hit rate\nFlat-LB", "\nCacheRoute",
    "@3.5 s\nFlat-LB", "\nCacheRoute", "@5 s\nFlat-LB", "\nCacheRoute", "ratio\n@3.5 s",
    "\n@5 s", "difference\n@3.5 s", "\n@5 s" } },
    "Difference: of paired seeds, and half its 95 % interval; tie: that holds 0.",
    "Hit rates at 60 requests a second (8B) and at 10 (32B).")
end

return cacheroute.experiment {
  name = "cacheroute_regimes",
  question = "where does affinity win, tie and lose?",
  axes = { { "regime", unpack(set.regimes) } },
  rates = { 10, 15, 20, 25, 30, 40, 60, 100, 160, 240, 360, 500 },
  policies = cacheroute.two,
  fleet = function(at)
    return lab.fleet.simulated { profile = of(at).profile or cacheroute.PROFILE_32B }
  end,
  ask = function(at) return of(at).ask end,
  router = function(at) return of(at).router or { plan_slots = 20 } end,
  measure = function(at)
    local out = {}
    for name, value in pairs(cacheroute.measure) do out[name] = value end
    if not of(at).profile then out.warmup_requests = 3000 end
    return out
  end,
  seeds = 4,
  report = report,
}
