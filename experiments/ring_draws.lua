-- Question  How much of the margin over session affinity is the luck of the ring?
-- Method    The frozen point on 20 rings. The requests are the same on all of them; where the ring
--           places its replicas decides how much the busiest one gets.
-- Seed      1 of the requests; rings 1 to 20
-- Run       kvroute run experiments/ring_draws.lua --results experiments/results/ring_draws
-- Takes     10 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local RINGS = 20
local rings = { "ring" }
for i = 1, RINGS do rings[i + 1] = i end

-- By ring: the ring's share of the busiest replica and the margins of prefix affinity.
local function draws(found)
  local out = {}
  for i = 1, RINGS do
    local function at(policy) return found:find(policy, { ring = i }) end
    local pa, sa, bsa = at("prefix_affinity"), at("session_affinity"),
      at("bounded_session_affinity")
    out[i] = {
      ring = i, share = 100 * sa:value("busiest_share"), sa = sa:value("goodput"),
      bsa = bsa:value("goodput"), pa = pa:value("goodput"),
      over_sa = 100 * (pa:value("goodput") / sa:value("goodput") - 1),
      over_bsa = 100 * (pa:value("goodput") / bsa:value("goodput") - 1),
    }
  end
  table.sort(out, function(a, b) return a.share < b.share end)
  return out
end

local function correlation(list, x, y)
  local n, sx, sy, sxx, syy, sxy = #list, 0, 0, 0, 0, 0
  for _, each in ipairs(list) do
    local a, b = each[x], each[y]
    sx, sy, sxx, syy, sxy = sx + a, sy + b, sxx + a * a, syy + b * b, sxy + a * b
  end
  return (n * sxy - sx * sy) / math.sqrt((n * sxx - sx * sx) * (n * syy - sy * sy))
end

local function column(list, name)
  local out = {}
  for i, each in ipairs(list) do out[i] = each[name] end
  return out
end

local function report(found)
  local list, rows = draws(found), {}
  for i, each in ipairs(list) do
    rows[i] = { each.ring, ("%.1f %%"):format(each.share), ("%.1f"):format(each.sa),
      ("%.1f"):format(each.bsa), ("%.1f"):format(each.pa), ("%+.0f %%"):format(each.over_sa),
      ("%+.0f %%"):format(each.over_bsa) }
  end
  local margins = column(list, "over_sa")
  local least, most = lab.stats.range(margins)
  return lab.table.text({
    rows = rows,
    head = { "ring", "busiest replica\nof session aff.", "session\naffinity", "bounded",
      "prefix\naffinity", "over\nsession", "over\nbounded" },
    notes = {
      ("margin over session affinity: least %+.0f %%, median %+.0f %%, most %+.0f %%"):format(
        least, lab.stats.median(margins), most),
      ("correlation of the busiest share with session affinity's goodput: %.2f"):format(
        correlation(list, "share", "sa")),
    },
  })
end

local function scatter(found)
  local sa, bsa = {}, {}
  for i, each in ipairs(draws(found)) do
    sa[i], bsa[i] = { x = each.share, y = each.over_sa }, { x = each.share, y = each.over_bsa }
  end
  return {
    kind = "lines", title = "What prefix affinity gains on 20 rings, working set 1, no skew",
    x = { label = "requests on the busiest replica of session affinity (%), fair is 20", min = 20 },
    y = { label = "goodput of prefix affinity over it (%)", min = 0 },
    lines = { { y = 66, label = "measured, one ring: +66 %", dotted = true } },
    series = {
      { name = "session_affinity", label = "over session affinity", dots = true, points = sa },
      { name = "bounded_session_affinity", label = "over bounded", dots = true, points = bsa },
    },
  }
end

return study.experiment {
  name = "ring_draws",
  question = "how much of the margin over session affinity is the luck of the ring?",
  axes = { rings },
  fleet = function(at) return study.fleet({ ring_seed = at.ring }) end,
  policies = { "session_affinity", "bounded_session_affinity", "prefix_affinity" },
  seeds = 1,
  report = report,
  figures = function(found) return { margin = scatter(found) } end,
}
