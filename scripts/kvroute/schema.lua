-- Tables that a user writes: unknown names and wrong types are refused; blame.lua adds the line.
local M = {}

---@return string[]
function M.names(of)
  local out = {}
  for name in pairs(of) do out[#out + 1] = tostring(name) end
  table.sort(out)
  return out
end

local function article(kind)
  return (kind:find("^[aeiou]") and "an " or "a ") .. kind
end

-- "count" is a number, too: a whole one that is not negative.
local function is_of(kinds, value)
  if kinds == "count" then return type(value) == "number" end
  return ("|" .. kinds .. "|"):find("|" .. type(value) .. "|", 1, true) ~= nil
end

---The types of each name, as "number", "count" (whole, not negative), "string|table", ...; a "?" at
---the end allows its absence.
---@param what string as the user calls the table
---@param values table
---@param types table<string, string>
---@return table values
function M.check(what, values, types)
  if type(values) ~= "table" then
    error(("%s takes a table, not %s"):format(what, article(type(values))), 0)
  end
  for name in pairs(values) do
    if not types[name] then
      error(("%s has no option %s; it has %s"):format(what, tostring(name),
        table.concat(M.names(types), ", ")), 0)
    end
  end
  for name, wanted in pairs(types) do
    local kinds, optional = wanted:gsub("%?$", "")
    local value = values[name]
    if value == nil and optional == 0 then
      error(("%s needs %s"):format(what, name), 0)
    elseif value ~= nil and not is_of(kinds, value) then
      error(("%s: %s is %s, not %s"):format(what, name,
        article((kinds:gsub("count", "number"):gsub("|", " or a "))), article(type(value))), 0)
    elseif value ~= nil and kinds == "count" and not (value >= 0 and value % 1 == 0) then
      error(("%s: %s is a whole number from 0, not %.15g"):format(what, name, value), 0)
    end
  end
  return values
end

-- JSON has no other numbers, so an address would not know them apart.
---Refuses NaN, infinities and what is no data, anywhere in it.
---@param what string
---@param value any
function M.check_data(what, value)
  local kind = type(value)
  if kind == "table" then
    for name, item in pairs(value) do M.check_data(("%s.%s"):format(what, tostring(name)), item) end
  elseif kind == "number" and (value ~= value or math.abs(value) == math.huge) then
    error(("%s is %s, not a number that can be kept"):format(what, tostring(value)), 0)
  elseif kind == "function" or kind == "userdata" or kind == "thread" or kind == "cdata" then
    error(("%s is %s, not data"):format(what, article(kind)), 0)
  end
end

---A copy of a table of plain data, a function being none.
function M.copy(value)
  if type(value) ~= "table" then return value end
  local out = {}
  for key, item in pairs(value) do out[key] = M.copy(item) end
  return setmetatable(out, getmetatable(value))
end

return M
