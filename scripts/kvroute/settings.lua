-- What an experiment lets its user set: names with defaults, which `--set NAME=VALUE` overrides.
-- The default gives the type; a list takes values with commas between.
--
--   local set = lab.settings { users = 32, skews = { 0, 1.4 }, policy = "prefix_affinity" }
local M = {}

local given = {}    -- by name, as the command line has them
local declared = {} -- by name, defaults

local function names(of)
  local out = {}
  for name in pairs(of) do out[#out + 1] = name end
  table.sort(out)
  return out
end

---A setting from the command line, before the experiment is read.
---@param text string "name=value"
function M.give(text)
  local name, value = text:match("^([%a_][%w_]*)=(.*)$")
  if not name then error(('--set is NAME=VALUE, not "%s"'):format(text), 0) end
  if given[name] then error("--set " .. name .. " is given twice", 0) end
  given[name] = value
end

local function bad(name, value, expected)
  error(('--set %s is %s, not "%s"'):format(name, expected, value), 0)
end

local function scalar(name, value, default)
  if type(default) == "number" then
    return tonumber(value) or bad(name, value, "a number")
  elseif type(default) == "boolean" then
    if value == "true" then return true end
    if value == "false" then return false end
    bad(name, value, "true or false")
  end
  return value
end

local function list(name, value, default)
  local out = {}
  for item in (value .. ","):gmatch("(.-),") do
    if type(default[1]) == "number" and not tonumber(item) then
      bad(name, value, "numbers with commas between")
    end
    out[#out + 1] = scalar(name, item, default[1])
  end
  return out
end

---@generic T: table
---@param defaults T a table of numbers, strings, booleans and lists of one of them
---@return T
function M.declare(defaults)
  local out = {}
  for name, default in pairs(defaults) do
    declared[name] = default
    local value = given[name]
    if value == nil then
      out[name] = default
    elseif type(default) == "table" then
      out[name] = list(name, value, default)
    else
      out[name] = scalar(name, value, default)
    end
  end
  return out
end

---After the experiment is read: what was given must have been declared.
function M.check()
  for _, name in ipairs(names(given)) do
    if declared[name] == nil then
      local has = table.concat(names(declared), ", ")
      error(("there is no setting %s; %s"):format(name,
        has == "" and "this experiment has none" or "there are " .. has), 0)
    end
  end
end

---@return {name: string, default: any}[]
function M.list()
  local out = {}
  for _, name in ipairs(names(declared)) do
    out[#out + 1] = { name = name, default = declared[name] }
  end
  return out
end

---For specs.
function M.reset()
  given, declared = {}, {}
end

return M
