-- Recorded cells judged anew from their rows, when the rules have changed. The rows must first give
-- the figures that were recorded: counts to the digit, times within what rows round away; a cell
-- whose rows do not was measured some other way, and then nothing at all is written. What is
-- written is drift, backlog and flags, never a measurement.
local lfs = require("lfs")
local drift = require("kvroute.drift")
local evidence = require("kvroute.evidence")
local json = require("kvroute.json")
local recorded = require("kvroute.recorded")
local store = require("kvroute.store")

local M = {
  ROUNDING = 0.002, -- of rows that the simulator has written
  SKETCH = 0.02,    -- of percentiles that the live driver took from a sketch
}

local function known(value)
  return value ~= json.null and value or nil
end

---@class kvr.Asked one request, by whichever row it left
---@field at_ms number when it was due, or sent
---@field end_ms number?
---@field turn number?
---@field success boolean
---@field ttft_ms number?
---@field itl_ms number
---@field measured boolean

-- A row of the load driver.
local function of_driver(row)
  return {
    at_ms = known(row.due_at_ms) or row.started_at_ms,
    end_ms = known(row.e2el_ms) and row.started_at_ms + row.e2el_ms,
    turn = known(row.turn), success = row.outcome == "success", failed = row.outcome == "failed",
    dropped = row.outcome == "dropped", ttft_ms = known(row.ttft_ms),
    itl_ms = known(row.itl_p50_ms) or 0,
    measured = not row.warmup,
  }
end

-- A row of the router in the simulator, whose clock began with the run. What its client saw is
-- further away by the network.
local function of_router(row, spec)
  local away = spec.fleet.network_ms or 0
  local measure, at = spec.measure, row.started_ms - away
  return {
    at_ms = at, end_ms = known(row.total_ms) and at + row.total_ms + 2 * away,
    turn = known(row.turn),
    success = row.outcome == "success", failed = row.outcome == "failed",
    dropped = row.outcome == "dropped",
    ttft_ms = known(row.ttft_ms) and row.ttft_ms + 2 * away,
    itl_ms = known(row.gap_p50_ms) or 0,
    measured = at >= (known(measure.warmup_s) or 0) * 1000
      and at < (known(measure.seconds) or math.huge) * 1000
      and (row.sequence or math.huge) > (known(measure.warmup_requests) or 0),
  }
end

local NUMBERS = {
  "started_at_ms", "started_ms", "due_at_ms", "e2el_ms", "total_ms", "ttft_ms", "itl_p50_ms",
  "gap_p50_ms", "turn",
}

local function is_row(row)
  if type(row) ~= "table" or type(row.outcome) ~= "string" then return false end
  for _, name in ipairs(NUMBERS) do
    local value = known(row[name])
    if value ~= nil and type(value) ~= "number" then return false end
  end
  return known(row.started_at_ms or row.started_ms) ~= nil
end

---@param path string
---@param spec table of the cell
---@return kvr.Asked[] measured ones
function M.read_rows(path, spec)
  local out, number = {}, 0
  for line in io.lines(path) do
    number = number + 1
    local ok, row = pcall(json.decode, line)
    if not ok or not is_row(row) then
      error(("%s:%d is no row"):format(path, number), 0)
    end
    local one = row.started_at_ms and of_driver(row) or of_router(row, spec)
    if one.measured then out[#out + 1] = one end
  end
  return out
end

-- Between the two next ones, as it was recorded.
local function quantile(sorted, share)
  if #sorted == 0 then return nil end
  local at = share * (#sorted - 1)
  local low = math.floor(at)
  local a, b = sorted[low + 1], sorted[low + 2] or sorted[low + 1]
  return a + (b - a) * (at - low)
end

local function window_s(asked, spec, open)
  local first, last, ended = math.huge, -math.huge, -math.huge
  for _, one in ipairs(asked) do
    first, last = math.min(first, one.at_ms), math.max(last, one.at_ms)
    ended = math.max(ended, one.end_ms or one.at_ms)
  end
  local measure = spec.measure
  if spec.fleet.kind == "simulated" and known(measure.seconds) and not known(measure.requests)
    and (known(measure.warmup_requests) or 0) == 0 then
    return measure.seconds - (known(measure.warmup_s) or 0)
  elseif spec.fleet.kind ~= "simulated" and not open then
    return (ended - first) / 1000
  end
  return (last - first) / 1000 * #asked / (#asked - 1)
end

local function backlog(asked)
  local last, open = -math.huge, 0
  for _, one in ipairs(asked) do last = math.max(last, one.at_ms) end
  for _, one in ipairs(asked) do
    if not one.end_ms or one.end_ms > last then open = open + 1 end
  end
  return open / #asked
end

---What the rows say of a cell.
---@param asked kvr.Asked[]
---@param spec table
---@param open boolean
---@return table figures
function M.figures(asked, spec, open)
  local slo, ttft = spec.slo, {}
  local out = { requests = #asked, success = 0, failed = 0, dropped = 0, good = 0 }
  for _, one in ipairs(asked) do
    if one.failed then out.failed = out.failed + 1 end
    if one.dropped then out.dropped = out.dropped + 1 end
    if one.success then
      out.success = out.success + 1
      ttft[#ttft + 1] = one.ttft_ms
      if (one.ttft_ms or math.huge) <= (known(slo.ttft_ms) or math.huge)
        and one.itl_ms <= (known(slo.itl_ms) or math.huge) then
        out.good = out.good + 1
      end
    end
  end
  table.sort(ttft)
  if #asked == 0 then return out end
  out.window_s = window_s(asked, spec, open)
  out.goodput_per_s = out.good / out.window_s
  out.ttft_p50_ms, out.ttft_p99_ms = quantile(ttft, 0.5), quantile(ttft, 0.99)
  out.backlog = backlog(asked)
  return out
end

local counts = { "requests", "success", "failed", "dropped", "good" }
local lengths = { "window_s", "goodput_per_s", "ttft_p50_ms", "ttft_p99_ms" }

local function recorded_figure(result, name)
  local field, percentile = name:match("^(ttft)_(p%d+)_ms$")
  if field then return known(result[field][percentile]) end
  return known(result[name])
end

-- The first figure that the rows do not reproduce, in words.
local function mismatch(figures, result, spec)
  for _, name in ipairs(counts) do
    local was = recorded_figure(result, name)
    if was and was ~= figures[name] then
      return ("%s: %g in the rows, %g recorded"):format(name, figures[name], was)
    end
  end
  local simulated = spec.fleet.kind == "simulated"
  for _, name in ipairs(lengths) do
    local was, is = recorded_figure(result, name), figures[name]
    local limit = not simulated and name:find("^ttft") and M.SKETCH or M.ROUNDING
    if was and (not is or math.abs(is - was) > limit * math.abs(was)) then
      return ("%s: %s in the rows, %g recorded"):format(name, tostring(is), was)
    end
  end
end

local function verdict_of(asked, result, figures, open)
  local seen = drift.new()
  for _, one in ipairs(asked) do
    seen:see(one.at_ms, one.turn, one.success and one.ttft_ms or nil)
  end
  return seen:finish({ open = open, turns = drift.turns_of(result.workload),
    backlog = figures.backlog })
end

local function name_of(flags)
  if #flags == 0 then return "clean" end
  local names = {}
  for i, flag in ipairs(flags) do names[i] = flag.name end
  return table.concat(names, ", ")
end

---@class kvr.Rescored
---@field name string of the cell
---@field path string
---@field why string? it could not be judged, or its rows do not reproduce it
---@field reproduced boolean?
---@field before string "clean", "cold opening"
---@field after string
---@field text string? what the new flags say
---@field record table with the new verdict

---@param each kvr.Recorded
---@return kvr.Rescored
function M.judge(each)
  local record = each.record
  local result, spec, open = record.result, record.cell, each.regime == "open"
  local out = {
    name = recorded.name(each), path = each.path, before = name_of(evidence.flags(result)),
  }
  local rows = each.path:gsub("%.json$", ".rows.jsonl")
  if lfs.attributes(rows, "mode") ~= "file" then
    out.why = "no rows"
    return out
  end
  local read, asked = pcall(M.read_rows, rows, spec)
  if not read then
    out.why, out.reproduced = asked, false
    return out
  end
  local figures = M.figures(asked, spec, open)
  out.why = mismatch(figures, result, spec)
  out.reproduced = not out.why
  if out.why then return out end
  result.evidence = result.evidence or {}
  if (result.script_errors or 0) > 0 then
    result.evidence.script_failures = result.script_errors
  end
  result.evidence.drift = verdict_of(asked, result, figures, open)
  result.backlog = figures.backlog
  local flags = evidence.judge(result, result.evidence, open)
  result.evidence.flags = flags
  out.after, out.text, out.record = name_of(flags), evidence.text(flags), record
  return out
end

-- Lists that a file may have empty.
local function keep_lists(record)
  local result = record.result
  local found = result.evidence.contamination
  for _, list in ipairs({
    record.cell.collect, result.evidence.flags, result.evidence.drift.causes,
    result.evidence.driver or {}, result.evidence.out_of_rotation or {},
    found and found.found or {},
  }) do
    json.list(list)
  end
end

---@param paths string[]
---@param write boolean
---@return string text
---@return boolean ok false: something is not reproduced, and nothing was written
function M.run(paths, write)
  local out, changed, unread, broken, judged = {}, 0, 0, 0, {}
  for _, each in ipairs(recorded.read(paths)) do
    local one = M.judge(each)
    judged[#judged + 1] = one
    if one.reproduced == false then
      broken = broken + 1
      out[#out + 1] = ("not reproduced: %s: %s"):format(one.name, one.why)
    elseif one.why then
      unread = unread + 1
    elseif one.before ~= one.after then
      changed = changed + 1
      out[#out + 1] = ("%s: %s -> %s"):format(one.name, one.before,
        one.text ~= "" and one.text or one.after)
    end
  end
  out[#out + 1] = ("%d cells: %d change, %d have no rows, %d are not reproduced by their rows")
    :format(#judged, changed, unread, broken)
  if write and broken == 0 then
    for _, one in ipairs(judged) do
      if one.record then
        keep_lists(one.record)
        store.write_file(one.path, json.encode(one.record) .. "\n")
      end
    end
  elseif write then
    out[#out + 1] = "nothing was written"
  end
  return table.concat(out, "\n") .. "\n", broken == 0
end

return M
