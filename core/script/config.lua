-- The reader of configuration files: turns a file's assignments into a flat list of entries for C,
-- and refuses what config_schema.lua does not allow. Evaluated in a VM of its own.
local schema, find_lines = ...

-- ---- values -------------------------------------------------------------------------------------

local file = {} -- name, and lines of what it sets; both nil when there is none
local given = {} -- names that were set from outside the file, over what it says
local setting_one -- true while one is set: its refusals do not name the file

-- "file:line: name: " for the nearest thing above `name` whose line is known.
local function place(name)
  local path = name
  while path do
    if given[path] then return name .. ": " end
    if file.lines and file.lines[path] then
      return file.name .. ":" .. file.lines[path] .. ": " .. name .. ": "
    end
    path = path:match("^(.*)%.[^.]*$")
  end
  return (file.name and file.name .. ": " or "") .. name .. ": "
end

local function refuse(name, what)
  error((setting_one and name .. ": " or place(name)) .. what, 0)
end

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

local readers = {
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
    return text(name, value, setting, "^http://[^%s/]+/?$", "such as http://127.0.0.1:8000")
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

-- Levenshtein's distance, for "did you mean".
local function distance(a, b)
  local row = {}
  for j = 0, #b do row[j] = j end
  for i = 1, #a do
    local diagonal = row[0]
    row[0] = i
    for j = 1, #b do
      local cost = a:byte(i) == b:byte(j) and 0 or 1
      diagonal, row[j] = row[j], math.min(row[j] + 1, row[j - 1] + 1, diagonal + cost)
    end
  end
  return row[#b]
end

local function refuse_unknown(name, key, settings)
  local best, best_distance
  local known = {}
  for i, setting in ipairs(settings) do
    known[i] = setting[1]
    local d = distance(tostring(key), setting[1])
    if not best or d < best_distance then best, best_distance = setting[1], d end
  end
  local hint = best_distance <= 2 and "did you mean " .. best .. "?"
    or "known: " .. table.concat(known, ", ")
  refuse(name, "no such setting; " .. hint)
end

-- ---- the tree -----------------------------------------------------------------------------------

local out -- entries for C: { name, kind, value }

-- Each has a second one, named with a "@": where messages say that it was set.
local function emit(name, kind, value)
  out[#out + 1] = { name, kind, value }
  out[#out + 1] = { "@" .. name, "text", place(name) }
end

-- As a script's param would be written on the command line.
local function param_text(value)
  return type(value) == "number" and ("%.14g"):format(value) or tostring(value)
end

local function emit_value(name, kind, value)
  if kind == "addresses" or kind == "texts" then
    emit(name, "list", #value)
    for i, element in ipairs(value) do emit(name .. "." .. i, "text", element) end
  elseif kind == "params" then
    local count = 0
    for key, param in pairs(value) do
      count = count + 1
      emit(name .. "." .. key, "text", param_text(param))
    end
    emit(name, "list", count)
  elseif kind == "number" or kind == "integer" then
    emit(name, "number", value)
  elseif kind == "boolean" then
    emit(name, "boolean", value)
  else
    emit(name, "text", value)
  end
end

local read_settings

-- A list and its items as tables, where texts may stand for them.
local function spelled_out(value, setting)
  if not setting.short then return value end
  if type(value) == "string" then value = { value } end
  if type(value) ~= "table" then return value end
  local result = {}
  for key, item in pairs(value) do
    result[key] = type(item) == "string" and { [setting.short] = item } or item
  end
  return result
end

local function read_items(name, value, setting)
  value = spelled_out(value, setting)
  if type(value) ~= "table" then
    refuse(name, "must be a list, got " .. shown(value, setting))
  end
  local n = length(name, value)
  if setting.most and n > setting.most then
    refuse(name, ("must have at most %d items, has %d"):format(setting.most, n))
  end
  emit(name, "list", n)
  for i, item in ipairs(value) do read_settings(name .. "." .. i, item, setting.each) end
end

function read_settings(prefix, values, settings)
  if type(values) ~= "table" then
    refuse(prefix, "must be a table, got " .. shown(values, settings))
  end
  local known = {}
  for _, setting in ipairs(settings) do
    local key, kind = setting[1], setting[2]
    local name = prefix and prefix .. "." .. key or key
    local value = values[key]
    known[key] = true
    if setting.each then
      read_items(name, value == nil and {} or value, setting)
    elseif type(kind) == "table" then
      read_settings(name, value == nil and {} or value, kind)
    else
      if value == nil then value = setting[3] end
      if setting.needed and (value == nil or value == "") then refuse(name, "is missing") end
      emit_value(name, kind, readers[kind](name, value, setting))
    end
  end
  for key in pairs(values) do
    if not known[key] then
      refuse_unknown(prefix and prefix .. "." .. tostring(key) or tostring(key), key, settings)
    end
  end
end

local function read_all(values)
  out = {}
  read_settings(nil, values, schema)
  return out
end

local function loopback(where)
  local host = where:match("^(.*):%d+$")
  return host == "localhost" or host == "[::1]" or host:find("^127%.%d+%.%d+%.%d+$") ~= nil
end

-- What only the whole can say.
local function check(tree)
  local admin = tree.admin or {}
  if not loopback(admin.listen or "127.0.0.1:8081") and (admin.token or "") == "" then
    refuse("admin.token", "is needed when admin.listen is not a loopback address")
  end
  local canary = tree.canary or {}
  if (canary.share or 0) > 0 and (canary.policy or "") == "" then
    refuse("canary.policy", "is needed when canary.share is above 0")
  end
  local interval = (tree.plan or {}).interval_s or 0
  if interval > 0 and interval < 0.01 then
    refuse("plan.interval_s", "must be 0 or at least 0.01, got " .. tostring(interval))
  end
  if (tree.plan or {}).handover_every == 1 then
    refuse("plan.handover_every", "must be 0 or at least 2, got 1")
  end
  local routing = tree.routing or {}
  if routing.by == "key" and (routing.key or "") == "" then
    refuse("routing.key", "is needed when routing.by is \"key\"")
  end
  if routing.by == "tenant" and ((tree.tenant or {}).key or "") == "" then
    refuse("tenant.key", "is needed when routing.by is \"tenant\"")
  end
end

-- ---- evaluating a file --------------------------------------------------------------------------

local strings = { format = string.format, lower = string.lower, upper = string.upper,
  sub = string.sub, len = string.len }

local function environment()
  local base = {
    assert = assert, error = error, ipairs = ipairs, pairs = pairs, tonumber = tonumber,
    tostring = tostring, type = type, math = math, string = strings,
    table = { insert = table.insert, concat = table.concat },
    -- Secrets need not stand in the file.
    env = function(name, default)
      local value = os.getenv(name)
      if value == nil and default == nil then error("env: " .. name .. " is not set", 2) end
      return value == nil and default or value
    end,
  }
  local sections = {}
  for _, setting in ipairs(schema) do
    if setting.each or type(setting[2]) == "table" or setting[2] == "params" then
      sections[setting[1]] = true
    end
  end
  return setmetatable({}, {
    __index = function(values, name)
      if base[name] ~= nil then return base[name] end
      if not sections[name] then error("no setting or function named " .. tostring(name), 2) end
      local section = {}
      rawset(values, name, section)
      return section
    end,
  })
end

local values = {}
local M = {}

-- Refuses a file that says something and sets nothing: it would start with the defaults. So would a
-- setting whose name a local has taken.
local function refuse_idle(returned)
  for _, setting in ipairs(schema) do
    local line = file.locals[setting[1]]
    if line and values[setting[1]] == nil then
      error(("%s:%d: %s: is a local, which sets nothing: leave out local, or name it otherwise")
        :format(file.name, line, setting[1]), 0)
    end
  end
  local example = schema[1].each and schema[1][1] .. " = { ... }" or 'policy = "p2c"'
  local what = returned > 0 and "returns a value, which sets nothing"
    or next(values) == nil and file.last_line and "sets nothing"
  local line = returned > 0 and file.returns or file.last_line
  if what then
    error(("%s:%d: %s: settings are plain assignments, such as %s, without local and return")
      :format(file.name, line or 1, what, example), 0)
  end
end

-- What a file throws may be anything; what is told has a place.
local function located(message)
  if type(message) == "string" then return message end
  local level, caller = 3, debug.getinfo(2, "Sl")
  while caller and caller.source:sub(1, 1) ~= "@" do
    level, caller = level + 1, debug.getinfo(level, "Sl")
  end
  return ("%s:%d: error() with a %s, not a text"):format(file.name,
    caller and caller.currentline or 1, type(message))
end

-- Runs a file; how many values it returns.
local function run(chunk)
  local count
  local ok, why = xpcall(function() count = select("#", chunk()) end, located)
  if not ok then error(why, 0) end
  return count
end

-- Evaluates `chunk`, a loaded file with this name and source. Returns the entries.
function M.read(chunk, name, source)
  file.name = name
  if chunk then
    local env = environment()
    setfenv(chunk, env)
    getmetatable("").__index = strings
    local returned = run(chunk)
    getmetatable("").__index = string
    for key, value in pairs(env) do values[key] = value end
    file.lines, file.last_line, file.returns, file.locals = find_lines(source)
    refuse_idle(returned)
  end
  local entries = read_all(values)
  check(values)
  return entries
end

-- ---- setting one --------------------------------------------------------------------------------

local function from_text(value, kind)
  if kind == "number" or kind == "integer" then return tonumber(value) or value end
  if kind == "boolean" then
    if value == "true" or value == "1" then return true end
    if value == "false" or value == "0" then return false end
  end
  return value
end

local function find(settings, key)
  for _, setting in ipairs(settings) do
    if setting[1] == key then return setting end
  end
end

local function copy(value)
  if type(value) ~= "table" then return value end
  local result = {}
  for key, element in pairs(value) do result[key] = copy(element) end
  return result
end

-- Sets a dotted name to a text, in a copy that is kept only when all of it is good.
function M.set(name, value)
  setting_one = true
  local was_given = given[name]
  local tree = copy(values)
  local at, settings, parts = tree, schema, {}
  for part in name:gmatch("[^.]+") do parts[#parts + 1] = part end
  if #parts == 0 then error("no such setting: \"\"", 0) end
  local i = 1
  while i <= #parts do
    local setting = find(settings, parts[i])
    if not setting then refuse_unknown(name, parts[i], settings) end
    if i == #parts then
      if setting.each or type(setting[2]) == "table" or setting[2] == "params" then
        refuse(name, "is a table: set one of its keys")
      end
      at[parts[i]] = from_text(value, setting[2])
      break
    end
    at[parts[i]] = spelled_out(at[parts[i]] or {}, setting)
    at = at[parts[i]]
    if setting[2] == "params" then
      at[table.concat(parts, ".", i + 1)] = value
      break
    end
    settings = setting.each or setting[2]
    if setting.each then
      i = i + 1
      local index = tonumber(parts[i])
      if not index or index % 1 ~= 0 or index < 1 or index > #at + 1 or i == #parts then
        refuse(name, "must name item 1 to " .. #at + 1 .. " and one of its keys")
      end
      at[index] = at[index] or {}
      at = at[index]
    elseif type(settings) ~= "table" then
      refuse(name, "no such setting; " .. parts[i] .. " has no keys")
    end
    i = i + 1
  end
  given[name] = true
  local good, entries = pcall(function()
    local result = read_all(tree)
    check(tree)
    return result
  end)
  setting_one = false
  if not good then
    given[name] = was_given
    error(entries, 0)
  end
  values = tree
  return entries
end

-- ---- telling -----------------------------------------------------------------------------------
local function default_text(setting)
  local default = setting[3]
  if default == nil then return "(needed)" end
  if type(default) == "table" then return "{}" end
  if type(default) == "string" then return '"' .. default .. '"' end
  return type(default) == "number" and ("%.14g"):format(default) or tostring(default)
end

local function describe(prefix, settings, rows)
  for _, setting in ipairs(settings) do
    local name = prefix .. setting[1]
    if setting.each then
      describe(name .. "[i].", setting.each, rows)
    elseif type(setting[2]) == "table" then
      describe(name .. ".", setting[2], rows)
    else
      local what = setting[4]
      if setting.one_of then what = what .. ": " .. table.concat(setting.one_of, ", ") end
      rows[#rows + 1] = ("%-28s %-18s %s"):format(name, default_text(setting), what)
    end
  end
  return rows
end

function M.describe()
  return table.concat(describe("", schema, {}), "\n") .. "\n"
end

return M
