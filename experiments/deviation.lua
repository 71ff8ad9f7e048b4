-- Question  How far is the emulated fleet from the measured one?
-- Method    The cells of the pressure map beside the published medians, point by point. One set of
--           constants for all policies; what was fitted stands in the profile.
-- Seed      1 to 9
-- Run       kvroute run experiments/deviation.lua --results experiments/results/deviation
-- Takes     2 minutes on two cores, nothing after pressure_map
local lab = require("kvroute")
local study = require("kvroute.study")
local measured = require("kvroute.measured")

local LIMIT = 15 -- percent

local policies = { unpack(study.policies) }
policies[#policies + 1] = study.off

local function deviation(pool)
  local real = measured.at(pool.policy, pool.at.working_set, pool.at.skew)
  return real and 100 * (pool:value("goodput") / real.goodput - 1)
end

local function goodput(found)
  local rows, within = {}, {}
  for _, pools in ipairs(found:places()) do
    local row = { pools[1].place }
    for i, pool in ipairs(pools) do
      local off = deviation(pool)
      row[i + 1] = off and ("%+.1f"):format(off)
      within[i] = (within[i] or 0) + (off and math.abs(off) <= LIMIT and 1 or 0)
    end
    rows[#rows + 1] = row
  end
  local last = { ("within %d %%"):format(LIMIT) }
  for i = 1, #within do last[i + 1] = ("%d of %d"):format(within[i], #rows) end
  rows[#rows + 1] = last
  local head = { "working_set, skew" }
  for i, policy in ipairs(found:policies()) do head[i + 1] = (policy:gsub("[ _]", "\n")) end
  return lab.table.text({ title = "emulated goodput over measured (%), medians", head = head,
    rows = rows })
end

-- Points, not percent: what the caches did.
local function hit_rate(found)
  local rows, head = {}, { "working_set, skew" }
  for _, pools in ipairs(found:places()) do
    local row = { pools[1].place }
    for _, pool in ipairs(pools) do
      local real = measured.at(pool.policy, pool.at.working_set, pool.at.skew)
      if real and real.cached then
        if #rows == 0 then head[#head + 1] = (pool.policy:gsub("_", "\n")) end
        row[#row + 1] = ("%+.1f"):format(100 * pool:value("hit_rate") - real.cached)
      end
    end
    rows[#rows + 1] = row
  end
  return lab.table.text({ title = "emulated share of cached tokens less measured (points)",
    head = head, rows = rows })
end

-- Measured across, emulated up: what is on the line is right.
local function scatter(found)
  local series = {}
  for i, policy in ipairs(found:policies()) do
    local points = {}
    for _, pool in ipairs(found.pools) do
      local real = pool.policy == policy
        and measured.at(policy, pool.at.working_set, pool.at.skew)
      if real then
        points[#points + 1] = { x = real.goodput, y = pool:value("goodput") }
      end
    end
    table.sort(points, function(a, b) return a.x < b.x end)
    series[i] = { name = policy, dots = true, points = points }
  end
  series[#series + 1] = { name = "equal", label = "equal", colour = "#bbbbbb", plain = true,
    points = { { x = 0, y = 0 }, { x = 40, y = 40 } } }
  return {
    kind = "lines", title = "Goodput of 12 points, emulated beside measured",
    x = { label = "measured on five RTX 3090 (requests/s)", min = 0, max = 40 },
    y = { label = "emulated (requests/s)", min = 0, max = 40 }, series = series,
  }
end

return study.experiment {
  name = "deviation",
  question = "how far is the emulated fleet from the measured one?",
  axes = study.grid(),
  ask = function(at) return { working_set = at.working_set, skew = at.skew } end,
  policies = policies,
  report = function(found) return goodput(found) .. "\n" .. hit_rate(found) end,
  figures = function(found) return { goodput = scatter(found) } end,
}
