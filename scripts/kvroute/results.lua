-- The cells of an experiment with what came out, in the order in which it names them; repetitions
-- that differ in the seed alone are a pool.
local cell = require("kvroute.cell")
local evidence = require("kvroute.evidence")
local json = require("kvroute.json")
local metric = require("kvroute.metric")
local schema = require("kvroute.schema")
local stats = require("kvroute.stats")
local tables = require("kvroute.table")

local M = {}

---@class kvr.Pool
---@field policy string label
---@field at table<string, any>
---@field place string "skew 1.4", "" without axes
---@field regime "closed"|"open"
---@field cells kvr.Cell[] those that have a result
---@field results table[] theirs
---@field missing integer cells without one
---@field excluded {cell: kvr.Cell, result: table}[] what speaks against them keeps them out
local Pool = {}
Pool.__index = Pool

---@class kvr.Results
---@field name string
---@field axes string[] names
---@field pools kvr.Pool[]
---@field missing integer
---@field ignored table<string, integer> flags that this experiment ignores, how many
local Results = {}
Results.__index = Results

-- ---- pools ----

---Each repetition's figure; NaN where one does not know it.
---@param name string of a metric
---@return number[]
function Pool:values(name)
  local out, m = {}, metric.find(name)
  for i, result in ipairs(metric.among(m, self.results)) do out[i] = m.of(result) or 0 / 0 end
  return out
end

---@return number # NaN: not known
function Pool:value(name)
  return metric.pool(metric.find(name), self.results)
end

---@return number least, number most
function Pool:range(name)
  return stats.range(self:values(name))
end

---"15.3 (14.8-15.6)", or "15.3" of a single one.
---@return string|false
function Pool:shown(name, with_range)
  local m, value = metric.find(name), self:value(name)
  if value ~= value then return false end
  if not with_range or #self.results < 2 then return m.show(value) end
  local least, most = self:range(name)
  return ("%s (%s-%s)"):format(m.show(value), m.show(least), m.show(most))
end

---What `read` says of each repetition's result.
---@generic T
---@param read fun(result: table): T
---@return T[]
function Pool:each(read)
  local out = {}
  for i, result in ipairs(self.results) do out[i] = read(result) end
  return out
end

---The median over repetitions of what no metric names.
---@param read fun(result: table): number? # nil: this one does not know
---@param format string
---@return string|false # false where one does not know
function Pool:median(read, format)
  local values = {}
  for i, result in ipairs(self.results) do
    values[i] = read(result)
    if values[i] == nil then return false end
  end
  return #values > 0 and format:format(stats.median(values))
end

---@class kvr.Comparison
---@field percent number of `with`; infinite over a zero
---@field difference number
---@field separated boolean the ranges do not touch
---@field text string "+38 %", "+1.2 over zero", "in spread", "+38 %, once"

---How this pool stands against another of the same loop.
---@param with kvr.Pool
---@param name string of a metric
---@return kvr.Comparison
function Pool:against(with, name)
  if self.regime ~= with.regime then
    error("a closed loop is not compared with an open one", 0)
  end
  local ours, theirs = self:value(name), with:value(name)
  local out = { difference = ours - theirs, percent = 100 * (ours - theirs) / theirs }
  out.separated = stats.separated(self:values(name), with:values(name))
  local once = #self.results < 2 or #with.results < 2 -- nothing is known of the spread
  if ours ~= ours or theirs ~= theirs then
    out.text = "-"
  elseif not out.separated and not once then
    out.text = "in spread"
  elseif theirs == 0 then
    out.text = ("+%s over zero"):format(metric.find(name).show(ours))
  else
    out.text = ("%+.0f %%%s"):format(out.percent, once and ", once" or "")
  end
  return out
end

-- ---- results ----

---@param policy string label
---@param at table<string, any>? any of its axes; a pool that has these
---@return kvr.Pool?
function Results:find(policy, at)
  for _, pool in ipairs(self.pools) do
    local fits = pool.policy == policy
    for axis, value in pairs(at or {}) do fits = fits and pool.at[axis] == value end
    if fits then return pool end
  end
end

---Pools of the same place and loop together, in order.
---@return kvr.Pool[][]
function Results:places()
  local out, known = {}, {}
  for _, pool in ipairs(self.pools) do
    local name = pool.regime .. " " .. pool.place
    if not known[name] then
      known[name] = {}
      out[#out + 1] = known[name]
    end
    table.insert(known[name], pool)
  end
  return out
end

---Labels of policies in order of appearance.
---@return string[]
function Results:policies()
  local out, known = {}, {}
  for _, pool in ipairs(self.pools) do
    if not known[pool.policy] then out[#out + 1] = pool.policy end
    known[pool.policy] = true
  end
  return out
end

---A table for each value of an axis, one below the other.
---@param axis string
---@param values any[]
---@param title string format of a value
---@param head string[]
---@param row_of fun(pool: kvr.Pool): (string|number|false)[]
---@return string
function Results:tables(axis, values, title, head, row_of)
  local out = {}
  for i, value in ipairs(values) do
    local rows = {}
    for _, pool in ipairs(self.pools) do
      if pool.at[axis] == value then rows[#rows + 1] = row_of(pool) end
    end
    out[i] = tables.text({ title = title:format(value), head = head, rows = rows })
  end
  return table.concat(out, "\n")
end

-- The fewest prompt tokens that any policy computed a request, on the very same bytes: those of one
-- place and seed. Unknown where one of the policies has no usable cell.
local function find_least(self)
  for _, pools in ipairs(self:places()) do
    local least, count = {}, {}
    for _, pool in ipairs(pools) do
      for i, each in ipairs(pool.cells) do
        local recomputed = metric.find("recomputed").of(pool.results[i])
        if recomputed then
          least[each.seed] = math.min(least[each.seed] or math.huge, recomputed)
          count[each.seed] = (count[each.seed] or 0) + 1
        end
      end
    end
    for _, pool in ipairs(pools) do
      for i, each in ipairs(pool.cells) do
        local known = #pools > 1 and count[each.seed] == #pools
        pool.results[i].least_recomputed = known and least[each.seed] or nil
      end
    end
  end
end

-- Without the flags that this experiment ignores, which are counted instead.
local function without(result, ignored, counts)
  local flags = {}
  for _, flag in ipairs(evidence.flags(result)) do
    if ignored[flag.name] then
      counts[flag.name] = (counts[flag.name] or 0) + 1
    else
      flags[#flags + 1] = flag
    end
  end
  local copy = schema.copy(result.evidence)
  if copy then copy.flags = json.list(flags) end
  return copy
end

local function add(self, pool, each, record, ignored)
  if not record then
    pool.missing, self.missing = pool.missing + 1, self.missing + 1
    return
  end
  local copy = {} -- to which a figure is added that depends on the others
  for field, value in pairs(record.result) do
    if value ~= json.null then copy[field] = value end
  end
  if ignored then copy.evidence = without(record.result, ignored, self.ignored) end
  if evidence.excluded(copy) then
    pool.excluded[#pool.excluded + 1] = { cell = each, result = copy }
  else
    pool.cells[#pool.cells + 1] = each
    pool.results[#pool.results + 1] = copy
  end
end

---@param name string
---@param axes string[]
---@param chains kvr.Cell[][]
---@param records table<string, table>
---@param ignored table<string, boolean>? flags that exclude nothing here
---@return kvr.Results
function M.new(name, axes, chains, records, ignored)
  local self = setmetatable({ name = name, axes = axes, pools = {}, missing = 0, ignored = {} },
    Results)
  local known = {}
  for _, chain in ipairs(chains) do
    for _, each in ipairs(chain) do
      local place = cell.place(each.at, axes)
      local id = table.concat({ each.policy, place, each.regime }, "\0")
      local pool = known[id]
      if not pool then
        pool = setmetatable({
          policy = each.policy, at = each.at, place = place, regime = each.regime, cells = {},
          results = {}, missing = 0, excluded = {},
        }, Pool)
        known[id] = pool
        self.pools[#self.pools + 1] = pool
      end
      add(self, pool, each, records[each.key], ignored)
    end
  end
  find_least(self)
  return self
end

-- ---- as data ----

local function script_of(script)
  if type(script) ~= "table" then return json.null end
  return { name = script.name, hash = script.hash, params = script.params }
end

local function metrics_of(read)
  local out = {}
  for _, each in ipairs(metric.all()) do
    local value = read(each)
    if value and value == value then out[each.name] = value end
  end
  return out
end

---Everything that is known, without the machine and the time: the same run gives the same bytes.
---@return table
function Results:data()
  local pools = json.list({})
  for i, pool in ipairs(self.pools) do
    local repetitions = json.list({})
    for j, each in ipairs(pool.cells) do
      repetitions[j] = {
        seed = each.seed, key = each.key, result = pool.results[j],
        policy = script_of(each.spec.policy), spill = script_of(each.spec.spill),
        profile = each.spec.fleet.profile, build = each.spec.build, slo = each.spec.slo,
      }
    end
    local excluded = json.list({})
    for j, each in ipairs(pool.excluded) do
      excluded[j] = { seed = each.cell.seed, key = each.cell.key,
        flags = json.list(evidence.flags(each.result)) }
    end
    pools[i] = {
      policy = pool.policy, at = pool.at, regime = pool.regime,
      missing = pool.missing, excluded = excluded,
      median = metrics_of(function(m) return pool:value(m.name) end),
      repetitions = repetitions,
    }
  end
  return { experiment = self.name, axes = json.list(self.axes), pools = pools }
end

local ORIGIN = {
  "seed", "regime", "profile", "policy_hash", "spill", "spill_hash", "build", "key",
}

---A row a cell.
---@return string
function Results:csv()
  local head = { "policy" }
  for _, axis in ipairs(self.axes) do head[#head + 1] = axis end
  for _, name in ipairs(ORIGIN) do head[#head + 1] = name end
  for _, each in ipairs(metric.all()) do head[#head + 1] = each.name end
  local rows = {}
  for _, pool in ipairs(self.pools) do
    for i, each in ipairs(pool.cells) do
      local spec, row = each.spec, { pool.policy }
      for _, axis in ipairs(self.axes) do
        local value = each.at[axis]
        if type(value) == "boolean" then value = tostring(value) end -- false would be "not known"
        row[#row + 1] = value == nil and false or value
      end
      local spill = type(spec.spill) == "table" and spec.spill or {}
      for _, value in ipairs({ each.seed, each.regime, spec.fleet.profile or "", spec.policy.hash,
        spill.name or "", spill.hash or "", spec.build, each.key }) do
        row[#row + 1] = value
      end
      for _, each_metric in ipairs(metric.all()) do
        row[#row + 1] = metric.read(each_metric, pool.results[i]) or false
      end
      rows[#rows + 1] = row
    end
  end
  return tables.csv(head, rows)
end

return M
