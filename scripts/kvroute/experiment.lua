-- An experiment: which cells there are, and what is shown of them. A file of experiments/ returns
-- one.
--
--   return lab.experiment {
--     name = "margins",
--     axes = { { "skew", 0, 1, 1.4 } },
--     fleet = lab.fleet.simulated { profile = "rtx3090-8b-awq", replicas = 5 },
--     workload = function(at) return lab.workload.kvroute { users = 32, skew = at.skew } end,
--     policies = { "session_affinity", { "prefix_affinity", spill = "off" } },
--     measure = { seconds = 300, warmup_s = 50 },
--     slo = { ttft_ms = 990, itl_ms = 24 },
--     seeds = 5,
--     show = { metrics = { "goodput", "hit_rate" } },
--   }
--
-- Cells are places on the axes x policies x seeds. What depends on the place is a function of it.
local blame = require("kvroute.blame")
local cell = require("kvroute.cell")
local collect = require("kvroute.collect")
local evidence = require("kvroute.evidence")
local ffi = require("kvroute.ffi")
local fleet = require("kvroute.fleet")
local json = require("kvroute.json")
local metric = require("kvroute.metric")
local policy = require("kvroute.policy")
local results = require("kvroute.results")
local router = require("kvroute.router")
local schema = require("kvroute.schema")

local M = {}

local SEEDS = 3

---@class kvr.Definition
---@field name string letters, digits, - and _: files are called so
---@field question string? one line, shown above the tables
---@field axes any[][]? { name, value, value, ... } each; the last varies fastest
---@field ladder any[]? one more axis { name, value, ..., stop = fun(result) }: each policy and seed
---  climbs it until `stop` says so
---@field fleet table|fun(at: table): table
---@field workload table|fun(at: table): table
---@field policies (string|kvr.ScriptChoice)[]|fun(at: table): (string|kvr.ScriptChoice)[]
---@field router table|fun(at: table): table|nil fields of the router; see lab.router
---@field measure kvr.Measure|fun(at: table): kvr.Measure
---@field slo {ttft_ms: number?, itl_ms: number?}|fun(at: table): table what counts as good
---@field collect string[]? files of collectors; see collect.lua
---@field seeds integer? 3 repetitions
---@field first_seed integer? 1 of the first repetition
---@field limit_s number? for one cell
---@field ignore string[]? flags that are meant to be raised, and exclude nothing; evidence.lua
---@field show kvr.Show?
---@field report (fun(results: kvr.Results): string)? instead of `show`
---@field figures (fun(results: kvr.Results): table<string, kvr.NamedFigure>)? by name; figure.lua

---@class kvr.Measure what is measured: requests sent after the warm-up, by time or by number
---@field seconds number? in all
---@field warmup_s number?
---@field requests number? after the warm-up
---@field warmup_requests number?
---@field drain_s number? longest wait for what was sent
---@field timeout_s number? a client that has waited so long goes away; simulated fleets only

local types = {
  name = "string", question = "string?", axes = "table?", ladder = "table?",
  fleet = "table|function", workload = "table|function", policies = "table|function",
  router = "table|function?", measure = "table|function", slo = "table|function",
  collect = "table?", seeds = "number?", first_seed = "count?", limit_s = "number?",
  show = "table?", report = "function?", figures = "function?", ignore = "table?",
}

---@class kvr.Experiment
---@field name string
---@field definition kvr.Definition
---@field axes string[]
local Experiment = {}
Experiment.__index = Experiment

-- Places are told apart by what they are called. A name or value that comes twice would make two
-- repetitions of one cell.
local function check_axis(axis, what, known)
  if type(axis) ~= "table" or type(axis[1]) ~= "string" or axis[2] == nil then
    error(what .. ": an axis is { name, value, value, ... }", 0)
  end
  local name, seen = axis[1], {}
  if known[name] then error(("%s: two axes are called %s"):format(what, name), 0) end
  known[name] = true
  for i = 2, table.maxn(axis) do
    local value = axis[i]
    local kind, text = type(value), tostring(value)
    if kind ~= "number" and kind ~= "string" and kind ~= "boolean" or value ~= value then
      error(("%s: a value of %s is %s; it is a number, a text or a boolean"):format(what, name,
        value ~= value and "NaN" or kind), 0)
    elseif seen[text] then
      error(("%s: %s is %s twice"):format(what, name, text), 0)
    end
    seen[text] = true
  end
end

local function check_seeds(seeds)
  if seeds and not (seeds >= 1 and seeds % 1 == 0) then
    error(("experiment: seeds is a whole number from 1, not %s"):format(tostring(seeds)), 0)
  end
end

local function check_ignored(names)
  for _, name in ipairs(names or {}) do
    if not evidence.NAMES[name] then
      error(("experiment: ignore: there is no flag %s; there are %s"):format(tostring(name),
        table.concat(schema.names(evidence.NAMES), ", ")), 0)
    end
  end
end

---@param definition kvr.Definition
---@return kvr.Experiment
function M.new(definition)
  schema.check("experiment", definition, types)
  if not definition.name:find("^[%w_-]+$") then
    error(("experiment: name is letters, digits, - and _, not %q"):format(definition.name), 0)
  end
  check_seeds(definition.seeds)
  check_ignored(definition.ignore)
  local axes, known = {}, {}
  for i, axis in ipairs(definition.axes or {}) do
    check_axis(axis, "experiment: axes", known)
    axes[i] = axis[1]
  end
  local ladder = definition.ladder
  if ladder then
    check_axis(ladder, "experiment: ladder", known)
    axes[#axes + 1] = ladder[1]
    if ladder.stop ~= nil and type(ladder.stop) ~= "function" then
      error("experiment: ladder: stop is a function of a result", 0)
    end
  end
  local show = definition.show or {}
  schema.check("experiment: show", show,
    { metrics = "table?", matrix = "string?", baseline = "string?" })
  for _, name in ipairs(show.metrics or { show.matrix }) do metric.find(name) end
  return setmetatable({ name = definition.name, definition = definition, axes = axes }, Experiment)
end

-- ---- places ----

local function places_of(axes)
  local places = { {} }
  for _, axis in ipairs(axes) do
    local longer = {}
    for _, place in ipairs(places) do
      for i = 2, #axis do
        local at = schema.copy(place)
        at[axis[1]] = axis[i]
        longer[#longer + 1] = at
      end
    end
    places = longer
  end
  return places
end

-- The place as a function of the experiment sees it: without this a misspelt axis would be nil, and
-- nil is most fields' default.
local function shown(at, axes)
  return setmetatable(schema.copy(at), { __index = function(_, name)
    error(("there is no axis %s; %s"):format(tostring(name),
      #axes > 0 and "there are " .. table.concat(axes, ", ") or "this experiment has none"), 2)
  end })
end

local function value_at(self, name, at)
  local value = self.definition[name]
  if type(value) ~= "function" then return value end
  local out = blame.call(value, shown(at, self.axes))
  if type(out) ~= "table" then
    local place = cell.place(at, self.axes)
    error(("experiment %s: %s gives %s%s"):format(self.name, name, type(out),
      place == "" and "" or " at " .. place), 0)
  end
  return out
end

local measures = {
  seconds = "number?", warmup_s = "number?", requests = "number?", warmup_requests = "number?",
  drain_s = "number?", timeout_s = "number?",
}

local function check_measure(measure)
  schema.check("measure", measure, measures)
  for _, name in ipairs(schema.names(measure)) do
    if measure[name] < 0 then
      error(("measure: %s is %g, and cannot be negative"):format(name, measure[name]), 0)
    end
  end
  if measure.seconds and measure.warmup_s and measure.warmup_s >= measure.seconds then
    error(("measure: a warm-up of %g s leaves nothing of %g s in all"):format(measure.warmup_s,
      measure.seconds), 0)
  end
  return measure
end

-- The text of a load point has no like at another, and is the same for all policies: its epoch.
local function with_epoch(workload, seed)
  local out = schema.copy(workload)
  out.epoch = tonumber(ffi.hash64(json.encode(workload) .. seed):sub(1, 8), 16)
  return out
end

-- A choice as text. It has names beside its first item, which JSON has no form for.
local function id_of(choice)
  if type(choice) ~= "table" then return type(choice) .. tostring(choice) end
  local parts = {}
  for name, value in pairs(choice) do parts[#parts + 1] = tostring(name) .. "=" .. id_of(value) end
  table.sort(parts)
  return "{" .. table.concat(parts, ",") .. "}"
end

local function policies_at(self, at)
  local out, labels = {}, {}
  for i, choice in ipairs(value_at(self, "policies", at)) do
    local id = id_of(choice)
    self.resolved[id] = self.resolved[id] or policy.resolve(choice)
    out[i] = self.resolved[id]
    if labels[out[i].label] then
      error(("experiment %s: two policies are called %s; give one a label"):format(self.name,
        out[i].label), 0)
    end
    labels[out[i].label] = true
  end
  if #out == 0 then error(("experiment %s has no policies"):format(self.name), 0) end
  return out
end

-- ---- cells ----

local function parts_at(self, at)
  local parts = { at = at, collect = self.collectors }
  parts.fleet, parts.workload = value_at(self, "fleet", at), value_at(self, "workload", at)
  for what, table_ in pairs({ fleet = parts.fleet, workload = parts.workload }) do
    if not table_.kind then
      error(("experiment %s: %s is made by lab.%s"):format(self.name, what, what), 0)
    end
  end
  parts.router = router.check(value_at(self, "router", at) or {})
  parts.measure = check_measure(value_at(self, "measure", at))
  parts.slo = schema.check("slo", value_at(self, "slo", at),
    { ttft_ms = "number?", itl_ms = "number?" })
  for _, name in ipairs({ "fleet", "workload", "router", "measure", "slo" }) do
    schema.check_data(name, parts[name])
  end
  return parts
end

-- A working set is one of the fleet at hand. The simulator knows it; the live driver is told.
local function with_capacity(workload, of)
  if of.kind ~= "simulated" and workload.kind == "sessions" and not workload.sessions
    and not workload.capacity_tokens then
    workload.capacity_tokens = fleet.capacity_tokens(of)
  end
  return workload
end

local function make_cell(parts, choice, seed)
  local copy = {}
  for name, value in pairs(parts) do copy[name] = value end
  copy.policy, copy.seed = choice, seed
  copy.workload = with_capacity(with_epoch(parts.workload, seed), parts.fleet)
  return cell.new(copy)
end

---All cells, in chains that are climbed one after another; without a ladder of one each. A place's
---repetitions come together, policies within.
---@param first_seed integer? instead of the experiment's own
---@param seeds integer? instead of the experiment's own number
---@return kvr.Cell[][]
function Experiment:chains(first_seed, seeds)
  local d, chains = self.definition, {}
  first_seed = first_seed or d.first_seed or 1
  self.resolved, self.collectors = {}, {}
  for i, path in ipairs(d.collect or {}) do self.collectors[i] = collect.read(path) end
  local rungs = places_of({ d.ladder })
  for _, at in ipairs(places_of(d.axes or {})) do
    local steps = {} -- by rung: the parts, and the policies there
    for i, rung in ipairs(rungs) do
      local place = schema.copy(at)
      for axis, value in pairs(rung) do place[axis] = value end
      steps[i] = { parts = parts_at(self, place), policies = policies_at(self, place) }
    end
    for seed = first_seed, first_seed + (seeds or d.seeds or SEEDS) - 1 do
      for p = 1, #steps[1].policies do
        local chain = {}
        for i, step in ipairs(steps) do chain[i] = make_cell(step.parts, step.policies[p], seed) end
        chains[#chains + 1] = chain
      end
    end
  end
  return chains
end

---@return (fun(record: table): boolean)?
function Experiment:stop()
  local stop = self.definition.ladder and self.definition.ladder.stop
  return stop and function(record) return stop(record.result) end
end

---@param chains kvr.Cell[][]
---@param records table<string, table>
---@return kvr.Results
function Experiment:results(chains, records)
  local ignored = {}
  for _, flag in ipairs(self.definition.ignore or {}) do ignored[flag] = true end
  return results.new(self.name, self.axes, chains, records, ignored)
end

---@return boolean
function M.is(value)
  return getmetatable(value) == Experiment
end

return M
