-- Evaluates a configuration file: what it may use, what it set, and that it set anything at all.
local find_lines = ...

local strings = { format = string.format, lower = string.lower, upper = string.upper,
  sub = string.sub, len = string.len }

local function environment(schema)
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

-- What a file throws may be anything; what is told has a place in it.
local function locator(name)
  return function(message)
    if type(message) == "string" then return message end
    local level, caller = 3, debug.getinfo(2, "Sl")
    while caller and caller.source:sub(1, 1) ~= "@" do
      level, caller = level + 1, debug.getinfo(level, "Sl")
    end
    return ("%s:%d: error() with a %s, not a text"):format(name,
      caller and caller.currentline or 1, type(message))
  end
end

-- Runs a file; how many values it returns.
local function run(chunk, name)
  local count
  local ok, why = xpcall(function() count = select("#", chunk()) end, locator(name))
  if not ok then error(why, 0) end
  return count
end

-- Refuses a file that says something and sets nothing: it would start with the defaults. So would a
-- setting whose name a local has taken.
local function refuse_idle(schema, name, values, returned, found)
  for _, setting in ipairs(schema) do
    local line = found.locals[setting[1]]
    if line and values[setting[1]] == nil then
      error(("%s:%d: %s: is a local, which sets nothing: leave out local, or name it otherwise")
        :format(name, line, setting[1]), 0)
    end
  end
  local example = schema[1].each and schema[1][1] .. " = { ... }" or 'policy = "p2c"'
  local what = returned > 0 and "returns a value, which sets nothing"
    or next(values) == nil and found.last_line and "sets nothing"
  local line = returned > 0 and found.returns or found.last_line
  if what then
    error(("%s:%d: %s: settings are plain assignments, such as %s, without local and return")
      :format(name, line or 1, what, example), 0)
  end
end

-- What a loaded file sets, as a tree, and the line of each setting by dotted name. `schema` has the
-- names of what may be set by key without being there ("health.interval_ms = 500").
return function(schema, chunk, name, source)
  local env = environment(schema)
  setfenv(chunk, env)
  getmetatable("").__index = strings
  local returned = run(chunk, name)
  getmetatable("").__index = string
  local values = {}
  for key, value in pairs(env) do values[key] = value end
  local found = {}
  found.lines, found.last_line, found.returns, found.locals = find_lines(source)
  refuse_idle(schema, name, values, returned, found)
  return values, found.lines
end
