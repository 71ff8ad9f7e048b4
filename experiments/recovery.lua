-- Question  Where do the costs of losing a replica land: while it is away, or when it comes back?
-- Method    Six requests a second, 5 s between the turns of a conversation. At 100 s one of five
--           cards is killed, or taken out through the router, drained and then restarted; it is
--           back with an empty cache after 111 s, as measured. Goodput in buckets of 5 s by when
--           requests were sent: medians and ranges over seeds; the study had one run each.
-- Seed      1 to 9
-- Run       kvroute run experiments/recovery.lua --results experiments/results/recovery
-- Takes     20 seconds on two cores
local lab = require("kvroute")
local recovery = require("kvroute.recovery")
local study = require("kvroute.study")

local FAULT_S, AWAY_S, DRAIN_S = 100, 110, 10
local VICTIM = 2
local plan = { fault_s = FAULT_S, warmup_s = 50, end_s = 300, bucket_s = 5 }
-- All conversations are at the same turn, and later turns are longer: goodput swings with their
-- period of 20 s. The figure has a bucket a period.
local periods = { fault_s = FAULT_S, warmup_s = 60, end_s = 300, bucket_s = 20 }

local faults = {
  kill = { { at_s = FAULT_S, replica = VICTIM, kind = "restart" } },
  drain = {
    { at_s = FAULT_S, replica = VICTIM, kind = "drain" },
    { at_s = FAULT_S + DRAIN_S, replica = VICTIM, kind = "restart" },
    { at_s = FAULT_S + 60, replica = VICTIM, kind = "restore" },
  },
}

local function curve_by(of)
  return function(result)
    local curve = recovery.new(of)
    local seen = result.collected.recovery
    for i, sent in ipairs(seen.sent) do
      curve:add((i - 1) * plan.bucket_s, sent, seen.good[i])
    end
    return curve:finish()
  end
end

-- The busiest replica's share of what was sent from one time to another, seconds from the fault.
local function busiest(result, from_s, to_s)
  local most, all = 0, 0
  for _, counts in ipairs(result.collected.recovery.by) do
    local own = 0
    for i, count in ipairs(counts) do
      local at = (i - 1) * plan.bucket_s - FAULT_S
      if at >= from_s and at < to_s then own = own + count end
    end
    most, all = math.max(most, own), all + own
  end
  return all > 0 and most / all or 0 / 0
end

local function median(values, format)
  local value, least, most = lab.stats.median(values), lab.stats.range(values)
  if value ~= value then return "never" end
  return (format .. " (" .. format .. "-" .. format .. ")"):format(value, least, most)
end

local function row_of(pool)
  local curves = pool:each(curve_by(plan))
  local function each(read)
    local out = {}
    for i, curve in ipairs(curves) do out[i] = read(curve) or 0 / 0 end
    return out
  end
  local function counted(name)
    return median(pool:each(function(r) return r.collected.recovery[name] end), "%.0f")
  end
  local function share(from_s, to_s)
    return pool:median(function(r) return 100 * busiest(r, from_s, to_s) end, "%.0f %%")
  end
  return {
    pool.policy, median(each(function(c) return c.baseline end), "%.2f"),
    median(each(function(c) return c.trough end), "%.1f"),
    ("%+.0f s"):format(lab.stats.median(each(function(c) return c.trough_s end))),
    median(each(function(c) return c.deficit end), "%.0f"),
    median(each(function(c) return c.steady_s end), "%.0f"),
    counted("lost"), counted("moved"), counted("outside"),
    share(-50, 0), share(0, AWAY_S), share(AWAY_S, 200),
  }
end

local head = {
  "policy", "goodput\nbefore /s", "least\n/s", "at", "requests\nshort", "steady\nfrom s", "lost",
  "moved", "outside\nSLO", "busiest\nbefore", "while\naway", "after",
}

local function report(found)
  local out = {}
  for i, pools in ipairs(found:places()) do
    local rows = {}
    for j, pool in ipairs(pools) do rows[j] = row_of(pool) end
    out[i] = lab.table.text({ title = pools[1].place, head = head, rows = rows })
  end
  return table.concat(out, "\n")
end

-- The median over seeds in each bucket, with the range.
local function panel(found, fault)
  local series = {}
  for i, policy in ipairs(found:policies()) do
    local pool, points = found:find(policy, { fault = fault }), {}
    local curves = pool:each(curve_by(periods))
    for b, bucket in ipairs(curves[1].buckets) do
      local values = {}
      for c, curve in ipairs(curves) do values[c] = curve.buckets[b].goodput end
      local least, most = lab.stats.range(values)
      points[b] = { x = bucket.from_s, y = lab.stats.median(values), low = least, high = most }
    end
    series[i] = { name = policy, points = points, step = true, step_width = periods.bucket_s }
  end
  return {
    title = fault, series = series, x = { label = "sent, seconds from the fault" },
    y = { label = "goodput (requests/s)", min = 0, max = 7 },
    lines = { { x = 0, label = "fault" }, { x = AWAY_S + 1, label = "back", dotted = true } },
  }
end

return study.experiment {
  name = "recovery",
  question = "where do the costs of losing a replica land?",
  axes = { { "fault", "kill", "drain" } },
  fleet = function(at)
    return study.fleet({
      changes = faults[at.fault],
      profile_set = { startup_ms = 1000 * (at.fault == "kill" and AWAY_S or AWAY_S - DRAIN_S) },
    })
  end,
  -- The study's router had no ramp.
  router = { index_ttl_ms = 57000, index_nodes = 16311, health_ramp_ms = 0 },
  ask = function() return { rate = 6 } end,
  measure = { seconds = 300, warmup_s = 50 },
  policies = { "session_affinity", study.off, "prefix_affinity" },
  collect = { "experiments/collect/recovery.lua" },
  -- A fault is meant to be seen.
  ignore = {
    "cold opening", "fleet slowed", "failures", "fractional visit periods", "past saturation",
  },
  report = report,
  figures = function(found)
    return { goodput = {
      kind = "lines", title = "A replica is lost at 6 requests a second",
      note = "medians and ranges of nine seeds, buckets of 20 s; back with an empty cache",
      panels = { panel(found, "kill"), panel(found, "drain") },
    } }
  end,
}
