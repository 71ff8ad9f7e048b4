-- Question  From which share of the prompt on does affinity pay (the outer-boundary sweep of
--           CacheRoute)?
-- Method    8B engines, 128 keys with 16 variants, prompts of 7,400 tokens of which a share is one
--           of the key's variants and the rest is new: nothing is common to all ("reconstructed
--           workload"). Two choices against the plan, up the ladder of rates. The paper has this as
--           a simulation as well, and no table of it.
-- Seed      2 and 3
-- Run       kvroute run experiments/cacheroute_boundary.lua --results
--             experiments/results/cacheroute_boundary
-- Takes     1 minute on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local set = lab.settings { shares = { 0.05, 0.15, 0.3, 0.5, 0.7, 0.9 } }
local PROMPT, COMMON = 7400, 60

-- "0.45": p99 of the plan over that of two choices.
local function tail(found, share, rate)
  local flat = found:find("p2c", { share = share, rate = rate })
  local plan = found:find("cacheroute", { share = share, rate = rate })
  local a, b = plan:value("ttft_p99_all_ms"), flat:value("ttft_p99_all_ms")
  if a ~= a and b ~= b then return false end
  if a ~= a then return "never" end
  return b ~= b and "0" or ("%.2f"):format(a / b)
end

local function report(found)
  local rows, head = {}, { "key's share\nof the prompt", "hit @60/s\nFlat-LB", "\nCacheRoute",
    "@3.5 s\nFlat-LB", "\nCacheRoute", "ratio" }
  local ladder = { 60, 100, 160, 240, 360 }
  for j, rate in ipairs(ladder) do
    head[6 + j] = (j == 1 and "p99 ratio\n@%d" or "\n@%d"):format(rate)
  end
  for i, share in ipairs(set.shares) do
    local row, own = { ("%g"):format(share) }, {}
    for j, policy in ipairs(cacheroute.two) do
      own[j] = capacity.of(found, policy, { share = share }, cacheroute.LIMIT_MS)
      row[1 + j] = found:find(policy, { share = share, rate = COMMON }):shown("hit_rate")
      row[3 + j] = capacity.text(own[j])
    end
    row[6] = capacity.ratio(own[2], own[1])
    for j, rate in ipairs(ladder) do row[6 + j] = tail(found, share, rate) end
    rows[i] = row
  end
  return cacheroute.text({ head = head, rows = rows },
    "p99 ratio: of the plan over two choices; never: only the plan fails, 0: only two choices do.")
end

return cacheroute.experiment {
  name = "cacheroute_boundary",
  question = "from which share of the prompt on does affinity pay?",
  axes = { { "share", unpack(set.shares) } },
  profile = cacheroute.PROFILE_8B,
  rates = cacheroute.RATES_8B,
  policies = cacheroute.two,
  ask = function(at)
    return { template_tokens = 0, context_tokens = 0, variants = 16,
      variant_tokens = at.share * PROMPT, unique_tokens = (1 - at.share) * PROMPT }
  end,
  seeds = 2,
  report = report,
}
