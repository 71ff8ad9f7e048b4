-- Question  From which share of the prompt on does affinity pay (the outer-boundary sweep of
--           CacheRoute)?
-- Method    8B engines, 128 keys with 16 variants, prompts of 7,400 tokens of which a share is one
--           of the key's variants and the rest is new: nothing is common to all ("reconstructed
--           workload"). Two choices against the plan, up a ladder of rates that is finer than the
--           paper's. Seeds are paired: a difference or a ratio is of equal requests, its mean and
--           half its 95 % interval of Student's t; where that holds 0, or 1, it is a tie. The paper
--           has this as a simulation as well, and no table of it.
-- Seed      2 to 6
-- Run       kvroute run experiments/cacheroute_boundary.lua --results
--             experiments/results/cacheroute_boundary
-- Takes     3 minutes on two cores
local cacheroute = require("kvroute.cacheroute")
local capacity = require("kvroute.capacity")
local lab = require("kvroute")

local set = lab.settings {
  shares = { 0.05, 0.15, 0.3, 0.5, 0.7, 0.9 },
  rates = { 60, 80, 100, 120, 140, 160, 200, 240, 300 }, -- rising, from 60
}
local PROMPT, COMMON = 7400, 60
local TAILS = { 60, 80, 100, 120 } -- where p99 is compared

-- p99 of the plan over that of two choices, by seed: 0 where only two choices have none.
local function tails(found, share, rate)
  local flat = found:find("p2c", { share = share, rate = rate })
  local plan = found:find("cacheroute", { share = share, rate = rate })
  if not (flat and plan) then return {} end
  local theirs, out = {}, {}
  for i, cell in ipairs(flat.cells) do theirs[cell.seed] = flat.results[i].ttft_p99_all end
  for i, cell in ipairs(plan.cells) do
    local ours, other = plan.results[i].ttft_p99_all, theirs[cell.seed]
    if ours or other then
      out[#out + 1] = not ours and math.huge or not other and 0 or ours / other
    end
  end
  return out
end

local function tail(found, share, rate)
  local ratios = tails(found, share, rate)
  local least, most = lab.stats.range(ratios)
  if #ratios == 0 then return false end
  if most == 0 then return "0" end
  if least == math.huge then return "never" end
  if least == 0 or most == math.huge then return "mixed" end
  local mean, half = lab.stats.interval(ratios)
  if half ~= half then return ("%.2f"):format(mean) end
  return ("%.2f +- %.2f%s"):format(mean, half, math.abs(mean - 1) <= half and " tie" or "")
end

local function report(found)
  local rows, head = {}, { "key's share\nof the prompt", "hit @60/s\nFlat-LB", "\nCacheRoute",
    "@3.5 s\nFlat-LB", "\nCacheRoute", "\ndifference", "\nratio" }
  for j, rate in ipairs(TAILS) do
    head[7 + j] = (j == 1 and "p99 ratio\n@%d/s" or "\n@%d/s"):format(rate)
  end
  for i, share in ipairs(set.shares) do
    local row, own = { ("%g"):format(share) }, {}
    for j, policy in ipairs(cacheroute.two) do
      own[j] = capacity.of(found, policy, { share = share }, cacheroute.LIMIT_MS)
      row[1 + j] = found:find(policy, { share = share, rate = COMMON }):shown("hit_rate")
      row[3 + j] = capacity.text(own[j])
    end
    row[6] = capacity.difference(own[2], own[1])
    row[7] = capacity.ratio(own[2], own[1])
    for j, rate in ipairs(TAILS) do row[7 + j] = tail(found, share, rate) end
    rows[i] = row
  end
  return cacheroute.text({ head = head, rows = rows },
    "Difference, and p99 ratio (the plan over two choices): means of paired seeds and half their",
    "95 % intervals; tie: that holds 0, or 1. Where only two choices have no p99 it is 0, where",
    "only the plan has none it is never, where some seeds have one it is mixed.")
end

-- ---- the figure ----

local COLOURS = { [60] = "#56b4e9", [120] = "#0072b2" }

local function knees(found)
  local series = {}
  for i, policy in ipairs(cacheroute.two) do
    local points = {}
    for j, share in ipairs(set.shares) do
      local own = capacity.of(found, policy, { share = share }, cacheroute.LIMIT_MS)
      local half = own.half == own.half and own.half or 0
      points[j] = { x = 100 * share, y = own.mean, low = own.mean - half, high = own.mean + half }
    end
    series[i] = { name = policy, label = cacheroute.titles[policy], points = points }
  end
  return series
end

local function ratios(found)
  local series = {}
  for _, rate in ipairs({ TAILS[1], TAILS[#TAILS] }) do
    local points = {}
    for j, share in ipairs(set.shares) do
      local mean, half = lab.stats.interval(tails(found, share, rate))
      local known = half == half and mean < math.huge
      points[j] = known and { x = 100 * share, y = mean, low = mean - half, high = mean + half }
        or { x = 100 * share }
    end
    series[#series + 1] = { name = ("%d requests a second"):format(rate), points = points,
      colour = COLOURS[rate] }
  end
  return series
end

local function figures(found)
  local x = { label = "the key's share of the prompt (%)" }
  return { pays = {
    kind = "lines", title = "From which share of the prompt on a plan pays",
    note = "Reconstructed workload, emulated engines; means of five seeds, 95 % intervals",
    panels = {
      { title = "capacity within 3.5 s", x = x, y = { label = "requests a second", min = 0 },
        series = knees(found) },
      { title = "p99 of the plan over that of two choices", x = x,
        y = { label = "ratio", min = 0 }, series = ratios(found),
        lines = { { y = 1, label = "even" } } },
    },
  } }
end

return cacheroute.experiment {
  name = "cacheroute_boundary",
  question = "from which share of the prompt on does affinity pay?",
  axes = { { "share", unpack(set.shares) } },
  profile = cacheroute.PROFILE_8B,
  rates = set.rates,
  policies = cacheroute.two,
  ask = function(at)
    return { template_tokens = 0, context_tokens = 0, variants = 16,
      variant_tokens = at.share * PROMPT, unique_tokens = (1 - at.share) * PROMPT }
  end,
  seeds = 5,
  report = report,
  figures = figures,
}
