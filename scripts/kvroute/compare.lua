-- Recorded cells as one comparison: repetitions pooled to medians with their ranges, policies held
-- against a baseline, and a difference only where the ranges do not touch. What does not belong
-- together is refused, see mixture.lua; cells whose evidence excludes them are listed and nowhere
-- averaged. Closed and open loop never share a column.
local evidence = require("kvroute.evidence")
local json = require("kvroute.json")
local metric = require("kvroute.metric")
local mixture = require("kvroute.mixture")
local recorded = require("kvroute.recorded")
local report = require("kvroute.report")
local results = require("kvroute.results")
local tables = require("kvroute.table")

local M = {}

M.METRICS = {
  "goodput", "hit_rate", "recomputed", "redundant", "ttft_p50_ms", "ttft_p99_ms", "spill_rate",
  "cold_share", "deflected_share", "busiest_share",
}

---@class kvr.CompareOptions
---@field baseline string? label; the plainest policy
---@field axes string[]? more fields that may differ
---@field where {name: string, value: string}[]? only these cells
---@field metrics string[]? the first is what is compared
---@field matrix string? this metric as one table
---@field ignore table<string, boolean>? flags that exclude nothing

---@class kvr.CompareResult
---@field refusals kvr.Refusal[] not empty: nothing else is there
---@field results kvr.Results?
---@field options kvr.CompareOptions

local function refused(options, refusals)
  return { refusals = refusals, options = options }
end

local function check_baseline(baseline, found)
  local policies = found:policies()
  for _, policy in ipairs(policies) do
    if policy == baseline then return end
  end
  if baseline then
    error(("there is no policy %s; there are %s"):format(baseline, table.concat(policies, ", ")),
      0)
  end
end

---@param paths string[]
---@param options kvr.CompareOptions
---@return kvr.CompareResult
function M.read(paths, options)
  for _, name in ipairs(options.metrics or { options.matrix }) do metric.find(name) end
  local all, refusals = mixture.collapse(recorded.read(paths, options.where))
  if #refusals > 0 then return refused(options, refusals) end
  if #all == 0 then
    error(("there are no %scells in %s"):format(#(options.where or {}) > 0 and "such " or "",
      table.concat(paths, ", ")), 0)
  end
  local fields = recorded.axes(all, options.axes or {})
  local axes = recorded.place(all, fields)
  refusals = mixture.refusals(all, fields, axes)
  if #refusals > 0 then return refused(options, refusals) end
  recorded.sort(all, axes, options.baseline)
  local chains, records = {}, {}
  for i, each in ipairs(all) do
    chains[i] = { {
      spec = each.record.cell, key = each.record.key, policy = each.policy, at = each.at,
      seed = each.seed, regime = each.regime,
    } }
    records[each.record.key] = each.record
  end
  local found = results.new("compare", axes, chains, records, options.ignore)
  check_baseline(options.baseline, found)
  return { refusals = {}, results = found, options = options }
end

-- ---- text ----

-- "none found" for all, or how many cells of each.
local function contamination(found)
  local counts, order = {}, {}
  local function count(each, result)
    local text = each.spec.fleet.kind == "simulated" and "virtual time"
      or evidence.contamination(result)
    if not counts[text] then order[#order + 1] = text end
    counts[text] = (counts[text] or 0) + 1
  end
  for _, pool in ipairs(found.pools) do
    for i, each in ipairs(pool.cells) do count(each, pool.results[i]) end
    for _, each in ipairs(pool.excluded) do count(each.cell, each.result) end
  end
  local parts = {}
  for i, text in ipairs(order) do
    parts[i] = #order > 1 and ("%s (%d cells)"):format(text, counts[text]) or text
  end
  return "contamination: " .. table.concat(parts, ", ")
end

-- Cells that were recorded without a verdict: nothing was found, since nothing was looked for.
local function unjudged(found)
  local count = 0
  for _, pool in ipairs(found.pools) do
    for _, result in ipairs(pool.results) do
      if not (result.evidence and result.evidence.drift) then count = count + 1 end
    end
  end
  return count > 0 and ("not judged by their drift: %d cells"):format(count) or nil
end

---@param comparison kvr.CompareResult
---@return string
function M.text(comparison)
  local out = {}
  if #comparison.refusals > 0 then
    for i, each in ipairs(comparison.refusals) do out[i] = "refused: " .. each.text .. "\n" end
    out[#out + 1] = "--where NAME=VALUE takes only some of the cells, --axis NAME lets a field "
      .. "differ\n"
    return table.concat(out)
  end
  local found, options = comparison.results, comparison.options
  out[1] = report.text(found, {
    metrics = options.metrics or M.METRICS, matrix = options.matrix, baseline = options.baseline,
  })
  local flagged = report.flagged(found)
  if #flagged > 0 then out[2] = table.concat(flagged, "\n") .. "\n" end
  local notes = report.notes(found)
  notes[#notes + 1] = contamination(found)
  notes[#notes + 1] = unjudged(found)
  out[#out + 1] = table.concat(notes, "\n") .. "\n"
  return table.concat(out, "\n")
end

-- ---- data ----

local function compared(found, options)
  local name = (options.metrics or M.METRICS)[1]
  local baseline = options.baseline or found:policies()[1]
  local out = {}
  for _, pools in ipairs(found:places()) do
    local base
    for _, pool in ipairs(pools) do base = pool.policy == baseline and pool or base end
    for _, pool in ipairs(pools) do
      out[pool] = base and pool ~= base and pool:against(base, name)
    end
  end
  return out, baseline, name
end

---@param comparison kvr.CompareResult
---@return table
function M.data(comparison)
  if #comparison.refusals > 0 then return { refusals = json.list(comparison.refusals) } end
  local found = comparison.results
  local against, baseline, name = compared(found, comparison.options)
  local data = found:data()
  data.experiment, data.baseline, data.compared = nil, baseline, name
  for i, pool in ipairs(found.pools) do
    local entry, versus = data.pools[i], against[pool]
    entry.range = {}
    for _, m in ipairs(metric.all()) do
      local least, most = pool:range(m.name)
      if least == least then entry.range[m.name] = json.list({ least, most }) end
    end
    entry.against = versus and {
      difference = versus.difference, percent = versus.percent, separated = versus.separated,
      text = versus.text,
    } or nil
  end
  return data
end

---A row a pool: medians and ranges.
---@param comparison kvr.CompareResult
---@return string
function M.csv(comparison)
  local found, options = comparison.results, comparison.options
  local against, _, name = compared(found, options)
  local head = { "policy", "regime" }
  for _, axis in ipairs(found.axes) do head[#head + 1] = axis end
  for _, title in ipairs({ "repetitions", "excluded", name .. "_against_percent", "separated" }) do
    head[#head + 1] = title
  end
  for _, m in ipairs(metric.all()) do
    for _, title in ipairs({ m.name, m.name .. "_min", m.name .. "_max" }) do
      head[#head + 1] = title
    end
  end
  local rows = {}
  for i, pool in ipairs(found.pools) do
    local row, versus = { pool.policy, pool.regime }, against[pool]
    for _, axis in ipairs(found.axes) do row[#row + 1] = pool.at[axis] or false end
    row[#row + 1], row[#row + 2] = #pool.results, #pool.excluded
    row[#row + 1] = versus and versus.percent or false
    row[#row + 1] = versus and tostring(versus.separated) or false
    for _, m in ipairs(metric.all()) do
      local least, most = pool:range(m.name)
      row[#row + 1], row[#row + 2], row[#row + 3] = pool:value(m.name), least, most
    end
    rows[i] = row
  end
  return tables.csv(head, rows)
end

return M
