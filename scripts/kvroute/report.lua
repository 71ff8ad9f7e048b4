-- Tables of an experiment: a block for each place on its axes with a line a policy, or one figure
-- as a matrix of places and policies. Closed and open loop never share one.
local evidence = require("kvroute.evidence")
local metric = require("kvroute.metric")
local tables = require("kvroute.table")

local M = {}

local titles = { closed = "closed loop", open = "open loop" }

local function mixed(results)
  for _, pool in ipairs(results.pools) do
    if pool.regime ~= results.pools[1].regime then return true end
  end
  return false
end

local function heading(results, pool)
  local parts = {}
  if pool.place ~= "" then parts[1] = pool.place end
  if mixed(results) then parts[#parts + 1] = titles[pool.regime] end
  return #parts > 0 and table.concat(parts, ", ") or nil
end

local function gap(pool)
  local all = #pool.results + pool.missing + #pool.excluded
  if pool.missing == all then return "not run" end
  return #pool.results < all and ("%d of %d"):format(#pool.results, all)
end

---@class kvr.Show
---@field metrics string[]? names; the first, by which policies are compared, with its range
---@field matrix string? this metric as one table instead
---@field baseline string? label of the policy that others are compared with; the first

local function block(results, pools, show, baseline)
  local names = show.metrics
  local head = { "policy" }
  for i, name in ipairs(names) do head[i + 1] = metric.find(name).title end
  if #pools > 1 then head[#head + 1] = "against\n" .. baseline end
  local base
  for _, pool in ipairs(pools) do base = pool.policy == baseline and pool or base end
  local rows = {}
  for i, pool in ipairs(pools) do
    local row = { gap(pool) and ("%s (%s)"):format(pool.policy, gap(pool)) or pool.policy }
    for j, name in ipairs(names) do row[j + 1] = pool:shown(name, j == 1) end
    if #pools > 1 then
      row[#head] = pool ~= base and base ~= nil and pool:against(base, names[1]).text
    end
    rows[i] = row
  end
  return tables.text({ title = heading(results, pools[1]), head = head, rows = rows })
end

local function matrix(results, show, regime)
  local m = metric.find(show.matrix)
  local policies, rows = results:policies(), {}
  local head = { table.concat(results.axes, ", ") }
  for i, policy in ipairs(policies) do head[i + 1] = (policy:gsub(" ", "\n")) end
  for _, pools in ipairs(results:places()) do
    if pools[1].regime == regime then
      local row = { pools[1].place == "" and "all" or pools[1].place }
      for i, policy in ipairs(policies) do
        row[i + 1] = false
        for _, pool in ipairs(pools) do
          if pool.policy == policy then row[i + 1] = pool:shown(show.matrix, true) end
        end
      end
      rows[#rows + 1] = row
    end
  end
  local title = ("%s%s"):format(m.axis, mixed(results) and ", " .. titles[regime] or "")
  return tables.text({ title = title, head = head, rows = rows })
end

---@param results kvr.Results
---@param show kvr.Show
---@return string
function M.text(results, show)
  local out = {}
  if show.matrix then
    for _, regime in ipairs({ "closed", "open" }) do
      for _, pool in ipairs(results.pools) do
        if pool.regime == regime then
          out[#out + 1] = matrix(results, show, regime)
          break
        end
      end
    end
  else
    local baseline = show.baseline or results:policies()[1]
    for _, pools in ipairs(results:places()) do
      out[#out + 1] = block(results, pools, show, baseline)
    end
  end
  return table.concat(out, "\n")
end

-- A long line goes on below, further in.
local function fold(text)
  local lines, line = {}, ""
  for word in text:gmatch("%s*%S+") do
    if #line + #word > tables.WIDTH and line ~= "" then
      lines[#lines + 1] = line
      line = "     " .. word
    else
      line = line .. word
    end
  end
  lines[#lines + 1] = line
  return table.concat(lines, "\n")
end

local function flagged(out, head, pool, each, result)
  local flags = evidence.flags(result)
  if #flags == 0 then return end
  if #out == 0 then out[1] = head end
  out[#out + 1] = fold(("  %s%s, seed %s: %s"):format(pool.policy,
    pool.place == "" and "" or ", " .. pool.place, tostring(each.seed), evidence.text(flags)))
end

---Cells that something speaks against: those in no figure, and those that are kept all the same.
---@param results kvr.Results
---@return string[] lines
function M.flagged(results)
  local excluded, kept = {}, {}
  for _, pool in ipairs(results.pools) do
    for _, each in ipairs(pool.excluded) do
      flagged(excluded, "excluded, and in no figure above:", pool, each.cell, each.result)
    end
    for i, each in ipairs(pool.cells) do
      flagged(kept, "kept with a warning:", pool, each, pool.results[i])
    end
  end
  for _, line in ipairs(kept) do excluded[#excluded + 1] = line end
  return excluded
end

local function script_text(script)
  return ("%s %s"):format(script.name, script.hash:sub(1, 8))
end

local function ignored(results)
  local parts = {}
  for name, count in pairs(results.ignored) do
    parts[#parts + 1] = ("%s (%d %s)"):format(name, count, count == 1 and "cell" or "cells")
  end
  table.sort(parts)
  return #parts > 0 and "flags that exclude nothing here: " .. table.concat(parts, ", ") or nil
end

local function real_time_text(fleet)
  if fleet.kind == "urls" then return "live: engines that ran already" end
  if fleet.kind ~= "emulated" then return nil end
  local scale = fleet.time_scale or 1
  return "live: emulated engines behind real sockets"
    .. (scale ~= 1 and (", %g simulated seconds a second"):format(scale) or "")
end

-- Of cells in real time, excluded ones too: no rerun gives the same figures.
local function in_real_time(results)
  local out, seen = {}, {}
  local function note(each)
    local text = real_time_text(each.spec.fleet)
    if text and not seen[text] then
      out[#out + 1], seen[text] = text, true
    end
  end
  for _, pool in ipairs(results.pools) do
    for _, each in ipairs(pool.cells) do note(each) end
    for _, each in ipairs(pool.excluded) do note(each.cell) end
  end
  return out
end

---What the figures come from: seeds, profile, texts of scripts. Not the program: its build is in
---the JSON and CSV, and a table stays as it is when a comment in C changes.
---@param results kvr.Results
---@return string[]
function M.notes(results)
  local seeds, scripts, seen, profiles = {}, {}, {}, {}
  for _, pool in ipairs(results.pools) do
    for _, each in ipairs(pool.cells) do
      if not seen[each.seed] then seeds[#seeds + 1] = each.seed end
      seen[each.seed] = true
      local profile = each.spec.fleet.profile or "unknown"
      if not seen[profile] then profiles[#profiles + 1] = profile end
      seen[profile] = true
      for _, role in ipairs({ "policy", "spill" }) do
        local script = each.spec[role]
        if type(script) == "table" and not seen[script.hash] then
          seen[script.hash] = true
          scripts[#scripts + 1] = script_text(script)
        end
      end
    end
  end
  if #seeds == 0 then return in_real_time(results) end
  table.sort(seeds)
  local range = #seeds > 1 and ("seeds %d to %d, medians (ranges)"):format(seeds[1], seeds[#seeds])
    or "seed " .. seeds[1]
  local out = { ("%s; profile %s"):format(range, table.concat(profiles, ", ")) }
  for _, line in ipairs(in_real_time(results)) do out[#out + 1] = line end
  local line = "scripts " .. scripts[1]
  for i = 2, #scripts do
    if #line + #scripts[i] + 3 > tables.WIDTH then -- with a comma behind it
      out[#out + 1] = line .. ","
      line = "        " .. scripts[i]
    else
      line = line .. ", " .. scripts[i]
    end
  end
  out[#out + 1] = line
  local passed = ignored(results)
  out[#out + 1] = passed and fold(passed)
  return out
end

return M
