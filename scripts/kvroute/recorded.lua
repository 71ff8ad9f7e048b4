-- Cells that were run some time, read from files and folders: what each is, as fields with dotted
-- names ("slo.ttft_ms", "workload.turns"), and where it stands on the axes.
--
-- What a workload is comes from its name, which states every knob that a byte depends on with its
-- value, defaults too; what the experiment's file left out would look like a difference otherwise.
local lfs = require("lfs")
local given = require("kvroute.given")
local json = require("kvroute.json")
local palette = require("kvroute.palette")

local M = {}

---@class kvr.Recorded
---@field path string
---@field record table as stored: { key, cell, result }
---@field fields table<string, string|number|boolean>
---@field policy string label
---@field seed integer
---@field regime "closed"|"open"

-- ---- reading ----

local function has_tables(value, ...)
  for _, name in ipairs({ ... }) do
    if type(value[name]) ~= "table" then return false end
  end
  return true
end

local function is_cell(value)
  return type(value) == "table" and type(value.key) == "string"
    and has_tables(value, "cell", "result")
    and has_tables(value.cell, "fleet", "workload", "measure", "slo", "policy")
    and type(value.cell.policy.name) == "string" and type(value.result.requests) == "number"
end

local MOST = 2 ^ 30 -- bytes of a cell

local function read_file(path)
  local text, why = given.read(path, MOST)
  if not text then return nil, why end
  local ok, value = pcall(json.decode, text)
  if not ok or not is_cell(value) then return nil, path .. " is no cell" end
  return value
end

local function walk(folder, out)
  local names = {}
  for name in lfs.dir(folder) do
    if name:sub(1, 1) ~= "." then names[#names + 1] = name end
  end
  table.sort(names)
  for _, name in ipairs(names) do
    local path = folder .. "/" .. name
    local mode = lfs.attributes(path, "mode")
    if mode == "directory" then
      walk(path, out)
    elseif name:find("%.json$") then
      local record = read_file(path)
      if record then out[#out + 1] = { path = path, record = record } end
    end
  end
end

-- ---- fields ----

local function flatten(out, name, value)
  if type(value) ~= "table" then
    if value ~= json.null then out[name] = value end
  elseif value[1] ~= nil then
    out[name] = json.encode(value)
  else
    for key, item in pairs(value) do flatten(out, name .. "." .. key, item) end
  end
end

-- "sessions(n=307,skew=0)+rate(6,cv=1)" as workload.n, workload.skew, arrivals.rate, arrivals.cv.
local function add_workload(out, name)
  local prefix = "workload."
  for kind, knobs in name:gmatch("(%a+)(%b())") do
    out[prefix .. "kind"] = kind
    for item in knobs:sub(2, -2):gmatch("[^,]+") do
      local key, value = item:match("^([%w_]+)=(.*)$")
      key, value = key or kind, value or item
      out[prefix .. key] = tonumber(value) or value
    end
    prefix = "arrivals."
  end
end

local ignored = { seed = true, collect = true, workload = true, policy = true, spill = true }

---@param record table
---@return table<string, any>
function M.fields(record)
  local out, spec = {}, record.cell
  for name, value in pairs(spec) do
    if not ignored[name] then flatten(out, name, value) end
  end
  if record.result.workload then add_workload(out, record.result.workload) end
  out["workload.working_set"] = type(spec.workload) == "table" and spec.workload.working_set or nil
  -- Repetitions differ in these, and in nothing else.
  out["workload.seed"], out["workload.epoch"] = nil, nil
  return out
end

-- ---- policies ----

local function params_text(params)
  local names, parts = {}, {}
  for name in pairs(params or {}) do names[#names + 1] = name end
  table.sort(names)
  for i, name in ipairs(names) do parts[i] = ("%s=%s"):format(name, tostring(params[name])) end
  return #parts > 0 and " " .. table.concat(parts, " ") or ""
end

local function script_label(script)
  return type(script) == "table" and script.name .. params_text(script.params) or nil
end

-- A spill rule is named where one policy comes with several.
local function set_labels(all)
  local spills = {}
  for _, each in ipairs(all) do
    local name = script_label(each.record.cell.policy)
    spills[name] = spills[name] or {}
    spills[name][script_label(each.record.cell.spill) or "none"] = true
  end
  for _, each in ipairs(all) do
    local name = script_label(each.record.cell.policy)
    local first = next(spills[name])
    each.policy = name
    if next(spills[name], first) then
      each.policy = ("%s /%s"):format(name, script_label(each.record.cell.spill) or "none")
    end
  end
end

---@param each kvr.Recorded
---@return string # "prefix_affinity, seed 3 (path)"
function M.name(each)
  return ("%s, seed %s (%s)"):format(each.policy, tostring(each.seed), each.path)
end

-- Of one cell, for --where.
local function value_of(each, name)
  if name == "policy" then return each.policy end
  if name == "seed" then return each.seed end
  if name == "regime" then return each.regime end
  for _, prefix in ipairs({ "", "workload.", "arrivals.", "fleet.", "router.", "measure.",
    "slo." }) do
    local value = each.fields[prefix .. name]
    if value ~= nil then return value, prefix .. name end
  end
end
M.value_of = value_of

local function fits(each, wanted)
  for _, one in ipairs(wanted) do
    local value = value_of(each, one.name)
    local text = tostring(value)
    -- Of hashes the first digits will do.
    if one.name == "build" or one.name == "executors" then text = text:sub(1, #one.value) end
    if value == nil or text ~= one.value then return false end
  end
  return true
end

---@param paths string[] files of cells, and folders
---@param where {name: string, value: string}[]? only these
---@return kvr.Recorded[]
function M.read(paths, where)
  local all = {}
  for _, path in ipairs(paths) do
    local mode = lfs.attributes(path, "mode")
    if mode == "directory" then
      walk(path, all)
    else
      local record, why = read_file(path)
      if not record then error(why, 0) end
      all[#all + 1] = { path = path, record = record }
    end
  end
  for _, each in ipairs(all) do
    each.fields = M.fields(each.record)
    each.seed = each.record.cell.seed
    each.regime = each.fields["arrivals.kind"] == "closed" and "closed" or "open"
  end
  set_labels(all)
  local out = {}
  for _, each in ipairs(all) do
    if fits(each, where or {}) then out[#out + 1] = each end
  end
  set_labels(out)
  return out
end

-- ---- places ----

-- Fields that may differ without being asked: how much load, on how many conversations, how skewed.
local standard = { "workload.n", "workload.skew", "arrivals.users", "arrivals.rate" }

---@param all kvr.Recorded[]
---@param extra string[] names of more axes, as --axis has them
---@return string[] # fields
function M.axes(all, extra)
  local out = {}
  for i, field in ipairs(standard) do out[i] = field end
  for _, name in ipairs(extra) do
    local field
    for _, each in ipairs(all) do field = field or select(2, value_of(each, name)) end
    if not field then error(("no cell has a field %s"):format(name), 0) end
    out[#out + 1] = field
  end
  return out
end

local function differs(all, field)
  local first = {} -- by loop
  for _, each in ipairs(all) do
    local value = each.fields[field]
    if value ~= nil and first[each.regime] == nil then first[each.regime] = value end
    if first[each.regime] ~= value then return true end
  end
  return false
end

-- "workload.n" is the number of sessions; where working sets were asked for they read better.
local function shown(all, field)
  if field ~= "workload.n" then return field:match("[^.]*$"), field end
  for _, each in ipairs(all) do
    if not each.fields["workload.working_set"] then return "sessions", field end
  end
  return "working_set", "workload.working_set"
end

---Where each cell stands, on those axes on which anything differs.
---@param all kvr.Recorded[]
---@param fields string[]
---@return string[] names of axes
function M.place(all, fields)
  local names, sources = {}, {}
  for _, field in ipairs(fields) do
    if differs(all, field) then names[#names + 1], sources[#sources + 1] = shown(all, field) end
  end
  for _, each in ipairs(all) do
    each.at = {}
    for i, name in ipairs(names) do each.at[name] = each.fields[sources[i]] end
  end
  return names
end

local function before(a, b)
  if type(a) == "number" and type(b) == "number" then return a < b end
  return tostring(a) < tostring(b)
end

-- "hash weight=4" before "hash weight=12".
local function by_value(label)
  return (label:gsub("=([%d.]+)", function(digits)
    local value = tonumber(digits)
    return value and ("=%020.9f"):format(value)
  end))
end

---Closed loop first, then by axes, policies in their order, seeds.
---@param all kvr.Recorded[]
---@param axes string[]
---@param baseline string?
function M.sort(all, axes, baseline)
  table.sort(all, function(a, b)
    if a.regime ~= b.regime then return a.regime == "closed" end
    for _, axis in ipairs(axes) do
      local x, y = a.at[axis], b.at[axis]
      if x ~= y then return x == nil or y ~= nil and before(x, y) end
    end
    if a.policy ~= b.policy then
      if a.policy == baseline or b.policy == baseline then return a.policy == baseline end
      local x, y = by_value(a.policy), by_value(b.policy)
      if x ~= y then return palette.before(x, y) end
      return a.policy < b.policy
    end
    if a.seed ~= b.seed then return before(a.seed, b.seed) end
    return a.path < b.path
  end)
end

return M
