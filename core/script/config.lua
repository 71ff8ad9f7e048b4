-- The reader of configuration files: turns a file's assignments (config_file.lua) into a flat list
-- of entries for C, and refuses what the schema does not allow. Evaluated in a VM of its own.
local schema, load_kinds, evaluate = ...

-- ---- refusals -----------------------------------------------------------------------------------

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

local kinds = load_kinds(refuse)
local shown, length = kinds.shown, kinds.length

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
      emit_value(name, kind, kinds.read[kind](name, value, setting))
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

-- ---- reading a file -----------------------------------------------------------------------------

local values = {}
local M = {}

-- Evaluates `chunk`, a loaded file with this name and source; nil: the defaults. The entries.
function M.read(chunk, name, source)
  file.name = name
  if chunk then values, file.lines = evaluate(schema, chunk, name, source) end
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

-- ---- telling ------------------------------------------------------------------------------------

local function default_text(setting)
  local default = setting[3]
  if default == nil then return "(needed)" end
  if type(default) == "table" then return "{}" end
  if type(default) == "string" then return '"' .. default .. '"' end
  return type(default) == "number" and ("%.14g"):format(default) or tostring(default)
end

local NAME, DEFAULT, WIDTH = 28, 18, 100 -- columns of a line that tells of a setting

-- Words in lines of so many characters at most.
local function wrapped(words, width)
  local lines, line = {}, nil
  for word in words:gmatch("%S+") do
    if line and #line + 1 + #word > width then
      lines[#lines + 1], line = line, nil
    end
    line = line and line .. " " .. word or word
  end
  lines[#lines + 1] = line
  return lines
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
      local margin = (" "):rep(NAME + DEFAULT + 2)
      local head = ("%-" .. NAME .. "s %-" .. DEFAULT .. "s"):format(name, default_text(setting))
      rows[#rows + 1] = head .. " "
        .. table.concat(wrapped(what, WIDTH - #margin), "\n" .. margin)
    end
  end
  return rows
end

function M.describe()
  return table.concat(describe("", schema, {}), "\n") .. "\n"
end

return M
