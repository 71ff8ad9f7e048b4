-- Question  What does it buy to move few keys when a plan is made anew, and to move them warm?
-- Method    Thirty 70B engines under 128 keys of 42 variants ("reconstructed workload"), Poisson
--           arrivals. The weights of keys walk at random, sigma 0.3 an interval of 180 s in six
--           steps. After each of seven intervals, the first of which warms up, a plan: none
--           (stale), from scratch (LPT), or one that goes on from the last (keep): moves only
--           beyond 1 + theta times the mean and within a budget. Rates are the true ones or, where
--           it says counted, those of the router's window of 180 s. Above fresh is the expected
--           imbalance less that of a plan from scratch by the same rates. The dip is the hit rate
--           of the 50 s before a plan less that of the 50 s after it.
-- Seed      1 to 3
-- Run       kvroute run experiments/hysteresis.lua --results experiments/results/hysteresis
-- Takes     2 minutes on two cores
local lab = require("kvroute")

local set = lab.settings {
  replicas = 30, keys = 128, slots = 5, rates = { 100, 140 }, interval_s = 180, intervals = 6,
  sigma = 0.3, theta = 0.15, budget = 0.04, loyalty = 1.25, handover = 4,
  plans = { "stale", "scratch", "scratch, counted", "scratch, warmed", "keep", "keep, counted",
    "keep, warmed", "keep, if it pays" },
}

local STEPS, DIP_S, BUCKET_S = 6, 50, 10

local function keep(more)
  local out = { plan_keep = true, plan_theta = set.theta, plan_move_budget = set.budget,
    plan_loyalty = set.loyalty }
  for name, value in pairs(more or {}) do out[name] = value end
  return out
end

local plans = {
  stale = { plan_interval_ms = 0 },
  scratch = {},
  ["scratch, counted"] = { plan_true = false },
  ["scratch, warmed"] = { plan_handover = set.handover },
  keep = keep(),
  ["keep, counted"] = keep({ plan_true = false }),
  ["keep, warmed"] = keep({ plan_handover = set.handover }),
  ["keep, if it pays"] = keep({ plan_life_s = set.interval_s }),
}

local function router(at)
  local out = { plan_slots = set.slots, plan_at_start = true, plan_true = true,
    plan_interval_ms = 1000 * set.interval_s }
  for name, value in pairs(plans[at.plan]) do out[name] = value end
  return out
end

-- Cached share of what was sent within so many buckets from one of them on.
local function hit(seen, first, count)
  local prompt, cached = 0, 0
  for i = first, first + count - 1 do
    prompt, cached = prompt + (seen.prompt[i] or 0), cached + (seen.cached[i] or 0)
  end
  return 100 * cached / prompt
end

-- The busiest replica over the mean within an interval.
local function busiest(seen, first, count)
  local most, all = 0, 0
  for _, counts in ipairs(seen.by) do
    local own = 0
    for i = first, first + count - 1 do own = own + (counts[i] or 0) end
    most, all = math.max(most, own), all + own
  end
  return most * #seen.by / all
end

-- Means over the intervals of one run.
local function of_run(result)
  local seen, per = result.collected.intervals, set.interval_s / BUCKET_S
  local out = { moved = 0, over = 0, dip = 0, hit = 0, p99 = 0, busiest = 0, installed = 0 }
  local function add(name, value) out[name] = out[name] + value / set.intervals end
  for n = 1, set.intervals do
    local first = n * per + 1
    local plan = result.plans[n + 1]
    if plan then
      local installed = plan.verdict == 0
      add("moved", installed and 100 * plan.keys_moved / math.max(1, plan.keys_both) or 0)
      add("over", (installed and plan.imbalance or plan.stale) - plan.fresh)
      out.installed = out.installed + (installed and 1 or 0)
    end
    local count = DIP_S / BUCKET_S
    add("dip", hit(seen, first - count, count) - hit(seen, first, count))
    add("hit", hit(seen, first, per))
    add("busiest", busiest(seen, first, per))
    local p99 = seen.p99_ms[n + 1]
    add("p99", type(p99) == "number" and p99 or math.huge)
  end
  return out
end

local function row_of(pool)
  local runs = pool:each(of_run)
  local function shown(name, format, with_range)
    local values = {}
    for i, run in ipairs(runs) do values[i] = run[name] end
    local median = lab.stats.median(values)
    if median == math.huge then return false end
    local text = format:format(median)
    if not with_range then return text end
    return ("%s (" .. format .. " to " .. format .. ")"):format(text, lab.stats.range(values))
  end
  local planned = pool.at.plan ~= "stale"
  return { pool.at.plan, planned and shown("installed", "%.0f"),
    planned and shown("moved", "%.1f", true), planned and shown("over", "%.2f", true),
    shown("busiest", "%.2f"), shown("hit", "%.1f"), shown("dip", "%.1f", true),
    shown("p99", "%.0f") }
end

local function report(found)
  return found:tables("rate", set.rates, "%g requests a second", {
    "plan", ("plans\nof %d"):format(set.intervals), "keys moved\nby each, %",
    "imbalance\nabove fresh", "busiest\nover mean", "hit\n%", "dip after each,\npoints of hit",
    "TTFT p99\nof all, ms",
  }, row_of)
end

local COLOURS = { scratch = "#d55e00", ["scratch, warmed"] = "#e69f00", keep = "#0072b2" }

-- Cached share over time: the median over seeds in each bucket.
local function panel(found)
  local series, rate = {}, set.rates[#set.rates]
  for _, plan in ipairs({ "scratch", "scratch, warmed", "keep" }) do
    local pool, points = found:find("cacheroute", { rate = rate, plan = plan }), {}
    local buckets = pool and set.interval_s * (set.intervals + 1) / BUCKET_S or 0
    for b = set.interval_s / BUCKET_S, buckets do
      local values = pool:each(function(result) return hit(result.collected.intervals, b, 1) end)
      local least, most = lab.stats.range(values)
      points[#points + 1] = { x = b * BUCKET_S, y = lab.stats.median(values), low = least,
        high = most }
    end
    if pool then
      series[#series + 1] = { name = plan, points = points, colour = COLOURS[plan] }
    end
  end
  return { title = ("%g requests a second"):format(rate), series = series,
    x = { label = "seconds" }, y = { label = "prompt tokens that were cached (%)" } }
end

return lab.experiment {
  name = "hysteresis",
  question = "what does it buy to move few keys when a plan is made anew, and to move them warm?",
  axes = { { "rate", unpack(set.rates) }, { "plan", unpack(set.plans) } },
  fleet = lab.fleet.simulated { profile = "h100x2-70b-fp8", replicas = set.replicas },
  router = router,
  workload = function(at)
    return lab.workload.keys { keys = set.keys, rate = at.rate, gap_cv = 1,
      drift_sigma = set.sigma / math.sqrt(STEPS),
      drift_requests = at.rate * set.interval_s / STEPS }
  end,
  policies = { "cacheroute" },
  measure = { seconds = set.interval_s * (set.intervals + 1), warmup_s = set.interval_s,
    drain_s = 30 },
  slo = { ttft_ms = 3500 },
  collect = { "experiments/collect/intervals.lua" },
  ignore = { "past saturation", "failures", "fleet slowed", "cold opening" },
  seeds = 3,
  report = report,
  figures = function(found)
    return { hit = {
      kind = "lines", title = "A plan every three minutes, from scratch or from the last",
      note = "medians and ranges of three seeds, buckets of 10 s", panels = { panel(found) },
    } }
  end,
}
