-- What speaks for a cell's figures and what against them. A flag is data, kept with the result: its
-- name, its text, and whether the cell may still be averaged:
--
--   excluded   listed, and in no median
--   warning    in the medians, and marked
--
-- Some evidence has three states: found, "nothing found", and "nothing looked for".
local drift = require("kvroute.drift")

local M = {
  FAILED = 0.01,       -- share of requests
  LATE_OPEN_MS = 100,  -- p99 of how late requests went out, simulated
  LATE_CLOSED_MS = 10,
  LATE_ENGINES_MS = 10, -- p99 of the steps of emulated engines, simulated
}

---@class kvr.Flag
---@field name string "cold opening", "failures", ...
---@field text string with the figure
---@field warning boolean? the cell is kept all the same

---@class kvr.Evidence as executors hand it in; what they cannot know is absent
---@field drift kvr.DriftVerdict?
---@field late_p99_ms number? of a driver in real time
---@field engines_late_p99_ms number? of steps of emulated engines
---@field driver string[]? flags of the load driver: behind, busy, interrupted, rows_dropped, ...
---@field cancelled number? requests that the driver cut itself
---@field script_failures number? calls of policy and spill rule that failed, when there are any
---@field ejections number? of replicas by the router
---@field out_of_rotation string[]? replicas at the end
---@field contamination kvr.Contamination? see contamination.lua
---@field flags kvr.Flag[] by `judge`

-- All that `judge` may raise, by name.
M.NAMES = {}
for _, name in ipairs({ "nothing measured", "script failed", "late", "engines late", "busy",
  "interrupted", "rows_dropped", "cancelled", "ejections", "out of rotation", "unclean",
  "cold opening", "fleet slowed", "past saturation", "partial visits", "fractional visit periods",
  "failures",
}) do
  M.NAMES[name] = true
end

local function percent(share)
  return ("%.0f %%"):format(100 * share)
end

-- What was seen, of each cause.
local drift_texts = {
  ["cold opening"] = function(_, verdict)
    return ("TTFT p50 %+.0f %% in the first half"):format(100 * verdict.drift)
  end,
  ["fleet slowed"] = function(_, verdict)
    return ("TTFT p50 %+.0f %% in the second half"):format(100 * (1 / (1 + verdict.drift) - 1))
  end,
  ["past saturation"] = function(result)
    return percent(result.backlog) .. " open when arrivals ended: only its goodput stands"
  end,
  ["partial visits"] = function(_, verdict)
    return verdict.turns_confined .. " turns in one half only"
  end,
}
drift_texts["fractional visit periods"] = drift_texts["partial visits"]

local function flag_drift(out, result, verdict)
  for _, cause in ipairs(verdict.causes) do
    out[#out + 1] = {
      name = cause, text = drift_texts[cause](result, verdict),
      warning = cause == "past saturation" or nil,
    }
  end
end

local driver_texts = {
  busy = "the driver used all of its core",
  interrupted = "ended before its time",
  rows_dropped = "rows of requests are missing",
}

local function flag_driver(out, evidence, open)
  local limit = open and M.LATE_OPEN_MS or M.LATE_CLOSED_MS
  if evidence.late_p99_ms and evidence.late_p99_ms > limit then
    out[#out + 1] = { name = "late", text = ("requests went out %.0f ms late (p99)"):format(
      evidence.late_p99_ms) }
  end
  for _, name in ipairs(evidence.driver or {}) do
    if driver_texts[name] then out[#out + 1] = { name = name, text = driver_texts[name] } end
  end
  if (evidence.cancelled or 0) > 0 then
    out[#out + 1] = { name = "cancelled", text = ("%d requests were cut"):format(
      evidence.cancelled) }
  end
end

-- What C decided in its place is not the policy's figure.
local function flag_scripts(out, result, evidence)
  if (evidence.script_failures or 0) == 0 then return end
  out[#out + 1] = { name = "script failed", text = ("%d times; C decided %d of %d requests"):format(
    evidence.script_failures, result.fallbacks or 0, result.requests) }
end

local function flag_fleet(out, evidence)
  if (evidence.engines_late_p99_ms or 0) > M.LATE_ENGINES_MS then
    out[#out + 1] = { name = "engines late", text = ("their steps came %.0f ms late (p99)"):format(
      evidence.engines_late_p99_ms) }
  end
  if (evidence.ejections or 0) > 0 then
    out[#out + 1] = { name = "ejections", text = ("%d replicas were taken out"):format(
      evidence.ejections) }
  end
  local gone = evidence.out_of_rotation or {}
  if #gone > 0 then
    out[#out + 1] = { name = "out of rotation", text = table.concat(gone, ", ") .. " at the end" }
  end
  local contamination = evidence.contamination
  if contamination and contamination.state == "found" then
    out[#out + 1] = { name = "unclean", text = ("beside us: %s"):format(
      table.concat(contamination.found, "; ")) }
  end
end

---All flags of a result with its evidence, the worst first.
---@param result table
---@param evidence kvr.Evidence
---@param open boolean an open loop
---@return kvr.Flag[]
function M.judge(result, evidence, open)
  local out = {}
  if result.requests == 0 then
    out[1] = { name = "nothing measured", text = "no request was sent in the window" }
    return out
  end
  flag_scripts(out, result, evidence)
  flag_driver(out, evidence, open)
  flag_fleet(out, evidence)
  if evidence.drift then flag_drift(out, result, evidence.drift) end
  local failed = (result.failed + result.dropped + (result.unfinished or 0)) / result.requests
  if failed > M.FAILED then
    out[#out + 1] = { name = "failures", warning = true,
      text = ("%s of the requests failed"):format(percent(failed)) }
  end
  local sorted = {}
  for pass = 1, 2 do
    for _, flag in ipairs(out) do
      if (pass == 2) == (flag.warning == true) then sorted[#sorted + 1] = flag end
    end
  end
  return sorted
end

---@param result table
---@return kvr.Flag[]
function M.flags(result)
  return result.evidence and result.evidence.flags or {}
end

---@param result table
---@param ignored table<string, boolean>? names of flags that this experiment means to raise
---@return boolean
function M.excluded(result, ignored)
  for _, flag in ipairs(M.flags(result)) do
    if not flag.warning and not (ignored and ignored[flag.name]) then return true end
  end
  return false
end

---Times to first token of such a result say how long it ran, and nothing else.
---@param result table
---@return boolean
function M.saturated(result)
  for _, flag in ipairs(M.flags(result)) do
    if flag.name == "past saturation" then return true end
  end
  return false
end

---"cold opening (TTFT p50 +31 %, ...); failures (...)"
---@param flags kvr.Flag[]
---@return string
function M.text(flags)
  local parts = {}
  for i, flag in ipairs(flags) do parts[i] = ("%s (%s)"):format(flag.name, flag.text) end
  return table.concat(parts, "; ")
end

---What was looked at, in words, for the notes of a table.
---@param result table
---@return string
function M.contamination(result)
  local c = result.evidence and result.evidence.contamination
  if not c then return "not looked for" end
  return c.state == "clean" and "none found" or c.state == "found" and "found" or "not looked for"
end

---The collector of simulated cells: sees each record, and hands in what drift has to be judged by.
---@return fun(record: ffi.cdata*) see
---@return fun(result: table, open: boolean): kvr.Evidence finish
function M.collector()
  local seen = drift.new()
  local function see(record)
    if record.measured == 0 then return end
    seen:see(tonumber(record.sent_ns) / 1e6, record.session_turn,
      record.outcome == 0 and record.ttft_ms or nil)
  end
  return see, function(result, open)
    local evidence = {
      drift = seen:finish({ open = open, turns = drift.turns_of(result.workload),
        backlog = result.backlog }),
      script_failures = result.script_errors > 0 and result.script_errors or nil,
    }
    evidence.flags = M.judge(result, evidence, open)
    return evidence
  end
end

return M
