-- Question  Is this policy better than that one, and where?
-- Method    Both on the pressure grid: working sets of 0.25 to 8 of the fleet's cache (nominally)
--           by three skews, 32 users who never pause on five emulated RTX 3090, five seeds, 300
--           simulated seconds each. Better or worse only where the ranges of the seeds do not
--           touch.
-- Seed      1 to 5
-- Run       kvroute run experiments/ablate.lua --policy my.lua --against prefix_affinity
--           kvroute run experiments/ablate.lua --policy my.lua --watch     again at each save
--           ... --set spill=off --set against_spill=load_mean              other spill rules
--           ... --set metric=ttft_p99_ms --set users=64                    other measures and loads
-- Takes     10 seconds on two cores; the other policy's cells are kept from one time to the next
local lab = require("kvroute")

local set = lab.settings {
  policy = "prefix_affinity", against = "session_affinity", spill = "", against_spill = "",
  metric = "goodput", users = 32, working_sets = { 0.25, 1, 3, 8 }, skews = { 0, 1, 1.4 },
}

local function choice(name, spill, role)
  local label = name:match("([^/]*)%.lua$") or name
  if spill ~= "" then label = ("%s /%s"):format(label, spill:match("([^/]*)%.lua$") or spill) end
  return { name, spill = spill ~= "" and spill or nil, label = role and label .. role or label }
end

local ours, theirs = choice(set.policy, set.spill), choice(set.against, set.against_spill)
-- A changed copy of a policy may have its name.
if ours.label == theirs.label then ours.label = ours.label .. " (ours)" end

local function both(a, b, name)
  local x, y = a:value(name), b:value(name)
  return x == x and y == y and ("%.1f : %.1f"):format(100 * x, 100 * y)
end

-- "better", "worse", or neither, with the figures it rests on.
local function verdict(found, at, counts)
  local a, b = found:find(ours.label, at), found:find(theirs.label, at)
  local row = {
    at.working_set, at.skew, a:shown(set.metric, true), b:shown(set.metric, true), false,
    "unknown", both(a, b, "hit_rate"), both(a, b, "busiest_share"),
  }
  if not row[3] or not row[4] then
    counts.unknown = counts.unknown + 1
    return row
  end
  local versus = a:against(b, set.metric)
  row[5] = ("%+.1f %%"):format(versus.percent)
  local better = lab.metric(set.metric).better == "less" and -1 or 1
  local how = not versus.separated and "in spread"
    or versus.difference * better > 0 and "better" or "worse"
  counts[how] = counts[how] + 1
  counts.changes[#counts.changes + 1] = versus.percent
  row[6] = how
  return row
end

local function report(found)
  local rows = {}
  local counts = { better = 0, worse = 0, ["in spread"] = 0, unknown = 0, changes = {} }
  for _, working_set in ipairs(set.working_sets) do
    for _, skew in ipairs(set.skews) do
      rows[#rows + 1] = verdict(found, { working_set = working_set, skew = skew }, counts)
    end
  end
  local least, most = lab.stats.range(counts.changes)
  return lab.table.text({
    title = ("A %s, B %s: %s"):format(ours.label, theirs.label, lab.metric(set.metric).axis),
    head = { "working\nset", "skew", "A", "B", "A over B", "A is", "cached %\nA : B",
      "busiest %\nA : B" },
    rows = rows,
    notes = {
      ("A is better at %d points, worse at %d, in spread at %d%s; change %+.1f %% (%+.1f to %+.1f)")
        :format(counts.better, counts.worse, counts["in spread"],
        counts.unknown > 0 and (", unknown at %d"):format(counts.unknown) or "",
        lab.stats.median(counts.changes), least, most),
    },
  })
end

return lab.experiment {
  name = "ablate",
  axes = { { "working_set", unpack(set.working_sets) }, { "skew", unpack(set.skews) } },
  fleet = lab.fleet.simulated { profile = "rtx3090-8b-awq", replicas = 5 },
  router = lab.router.study,
  workload = function(at)
    return lab.workload.kvroute {
      working_set = at.working_set, skew = at.skew, users = set.users,
    }
  end,
  policies = { ours, theirs },
  measure = { seconds = 300, warmup_s = 50 },
  slo = { ttft_ms = 990, itl_ms = 24 },
  seeds = 5,
  report = report,
}
