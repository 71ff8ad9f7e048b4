-- Question  What is left of the plan when the engine has hardly any room for caches (Table 8 of
--           CacheRoute: 70B in fp16)?
-- Method    70B engines with 1,500 blocks. Two shapes of requests, since no one shape gives the
--           paper's hit rates here and in Table 1 ("reconstructed workload" both):
--             long    those of Table 1. A key's 42 variants are four times the whole cache, and
--                     three prompts fill it
--             short   1,200 tokens, as the paper's Table 6 has them, of which 1,130 are the key's
--                     and always the same: 20 keys stay on a replica
-- Seed      2 to 4, as the paper
-- Run       kvroute run experiments/cacheroute_table8.lua --results
--             experiments/results/cacheroute_table8
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")

local shapes = {
  long = {},
  short = { template_tokens = 0, context_tokens = 1130, variant_tokens = 0, variants = 0,
    unique_tokens = 70 },
}
local POLICIES = { "p2c", "session_affinity", "cacheroute" }
local LOWEST = 30

local paper = {
  [128] = { p2c = "19.5 %", session_affinity = "77.3 %", cacheroute = "76.4 %" },
  [256] = { p2c = "10 %", cacheroute = "77 %" },
}

local function report(found)
  local rows = {}
  for _, shape in ipairs({ "long", "short" }) do
    for _, keys in ipairs({ 128, 256 }) do
      for _, policy in ipairs(POLICIES) do
        local at = { shape = shape, keys = keys }
        local pool = found:find(policy, { shape = shape, keys = keys, rate = LOWEST })
        local own = capacity.of(found, policy, at, cacheroute.LIMIT_MS)
        local p99 = pool:shown("ttft_p99_all_ms") or "never"
        rows[#rows + 1] = {
          ("%s, K %d, %s"):format(shape, keys, cacheroute.titles[policy]),
          cacheroute.beside(pool:shown("hit_rate", true), paper[keys][policy]), p99,
          cacheroute.beside(capacity.text(own), keys == 128 and "<30" or nil),
          pool:shown("preemptions"),
        }
      end
    end
  end
  return cacheroute.text({ rows = rows, head = { "requests, active keys, policy",
    "hit rate\n@30/s", "TTFT p99\n@30/s", "capacity\n@3.5 s", "preempted\n@30/s" } })
end

return cacheroute.experiment {
  name = "cacheroute_table8",
  question = "what is left of the plan when the engine has hardly any room for caches?",
  axes = { { "shape", "long", "short" }, { "keys", 128, 256 } },
  profile = cacheroute.PROFILE_FP16,
  rates = cacheroute.RATES_70B,
  policies = POLICIES,
  ask = function(at)
    local out = { keys = at.keys }
    for name, value in pairs(shapes[at.shape]) do out[name] = value end
    return out
  end,
  report = report,
}
