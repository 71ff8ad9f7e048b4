-- The kinds of value that a setting can have, and what each may be. A reader returns the value as
-- it counts, or refuses it by `refuse(name, what)`, which raises.
local refuse = ...

-- A value for a message; secrets are never shown.
local function shown(value, setting)
  if setting.secret then return "something else" end
  if type(value) == "string" then
    return #value > 60 and '"' .. value:sub(1, 57) .. '..."' or '"' .. value .. '"'
  end
  if type(value) == "table" or type(value) == "function" then return "a " .. type(value) end
  return tostring(value)
end

local function number(name, value, setting)
  local kind = setting[2] == "integer" and "an integer" or "a number"
  local good = type(value) == "number" and value == value
    and value >= setting.min and value <= setting.max
  if setting[2] == "integer" then good = good and value % 1 == 0 end
  if not good then
    refuse(name, ("must be %s between %.14g and %.14g, got %s"):format(kind, setting.min,
      setting.max, shown(value, setting)))
  end
  return value
end

local function text(name, value, setting, pattern, what)
  if type(value) ~= "string" or value:find("%z") or not value:find(pattern) then
    refuse(name, "must be " .. what .. ", got " .. shown(value, setting))
  end
  return value
end

local function address(name, value, setting)
  text(name, value, setting, "^[^%s/]+:%d+$", "an address such as 127.0.0.1:8080")
  if tonumber(value:match(":(%d+)$")) > 65535 then
    refuse(name, "must have a port below 65536, got " .. shown(value, setting))
  end
  return value
end

-- How many items a list has; its keys are 1 to that. Lua's own # may count a gap.
local function length(name, value)
  local n = 0
  for _ in pairs(value) do n = n + 1 end
  for key in pairs(value) do
    if type(key) ~= "number" or key % 1 ~= 0 or key < 1 or key > n then
      refuse(name, "must be a list, has the key " .. tostring(key))
    end
  end
  return n
end

local function list(name, value, setting, item)
  if type(value) == "string" then
    item(name, value, setting)
    return { value }
  end
  if type(value) ~= "table" then
    refuse(name, "must be a text or a list of texts, got " .. shown(value, setting))
  end
  length(name, value)
  for i, element in ipairs(value) do item(name .. "." .. i, element, setting) end
  return value
end

local read = {
  number = number,
  integer = number,
  boolean = function(name, value, setting)
    if type(value) ~= "boolean" then
      refuse(name, "must be true or false, got " .. shown(value, setting))
    end
    return value
  end,
  text = function(name, value, setting)
    text(name, value, setting, "", "a text")
    for _, allowed in ipairs(setting.one_of or { value }) do
      if value == allowed then return value end
    end
    refuse(name, "must be one of " .. table.concat(setting.one_of, ", ") .. ", got "
      .. shown(value, setting))
  end,
  name = function(name, value, setting)
    return text(name, value, setting, "^[%w_%-./]*$", "a name of letters, digits and _, or a path")
  end,
  label = function(name, value, setting)
    if value == nil then refuse(name, "is missing") end
    text(name, value, setting, "^[%w_%-.]+$", "of letters, digits and _-.")
    if #value > 64 then refuse(name, "must be of at most 64 characters, got " .. #value) end
    return value
  end,
  token = function(name, value, setting)
    if value == nil then refuse(name, "is missing") end
    return text(name, value, setting, "^[!-~]+$", "a text of visible characters without blanks")
  end,
  path = function(name, value, setting)
    return text(name, value, setting, "^/[^%s]*$", "a path that begins with /")
  end,
  url = function(name, value, setting)
    if value == nil then refuse(name, "is missing") end
    return text(name, value, setting, "^http://[^%s/]+/?$", "such as http://127.0.0.1:8000"
      .. (tostring(value):find("^https:") and ", without TLS" or ""))
  end,
  address = address,
  addresses = function(name, value, setting)
    local result = list(name, value, setting, address)
    if #result == 0 then refuse(name, "must have an address") end
    return result
  end,
  texts = function(name, value, setting)
    return list(name, value, setting, function(item, element)
      text(item, element, setting, ".", "a text")
    end)
  end,
  params = function(name, value, setting)
    if type(value) ~= "table" then
      refuse(name, "must be a table of params, got " .. shown(value, setting))
    end
    for key, param in pairs(value) do
      if type(key) ~= "string" then
        refuse(name, "must have names for keys, has " .. tostring(key))
      end
      if type(param) == "table" or type(param) == "function" then
        refuse(name .. "." .. key, "must be a boolean, a number or a text, got a " .. type(param))
      end
    end
    return value
  end,
}

return { read = read, shown = shown, length = length }
