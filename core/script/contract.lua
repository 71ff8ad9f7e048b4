-- What a script must return, and how it is taken in. Evaluated once in every VM, after sandbox.lua,
-- whose results it gets. Returns `adopt`.
local env, request, view, observation = ...

local type, tostring, error, pairs, string, table = type, tostring, error, pairs, string, table

local needs_bits =
  { match = 1, plan = 2, residency = 4, keys = 8, openings = 16, work = 32, active = 64 }

local function refuse(...)
  error(table.concat({ ... }), 0)
end

local function sorted_keys(t)
  local keys = {}
  for key in pairs(t) do
    if type(key) ~= "string" then
      refuse("a key of ", type(key), " type where names are expected")
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  return keys
end

-- The value of `text` in the type of `default`.
local function param_value(name, default, text)
  if type(default) == "string" then return text end
  if type(default) == "boolean" then
    if text == "true" or text == "1" then return true end
    if text == "false" or text == "0" then return false end
    refuse("param ", name, ": must be true or false, got \"", text, "\"")
  end
  local value = tonumber(text)
  if not value or value ~= value then
    refuse("param ", name, ": must be a number, got \"", text, "\"")
  end
  return value
end

-- Sets the overrides in `params`, in place, and returns "k=v k=v".
local function set_params(params, overrides)
  local names = sorted_keys(params)
  for _, name in ipairs(names) do
    local kind = type(params[name])
    if kind ~= "boolean" and kind ~= "number" and kind ~= "string" then
      refuse("params.", name, ": must be a boolean, a number or a string, is a ", kind)
    end
  end
  for _, name in ipairs(sorted_keys(overrides)) do
    if params[name] == nil then
      refuse("no param named ", name, "; known: ",
        #names > 0 and table.concat(names, ", ") or "none")
    end
    params[name] = param_value(name, params[name], overrides[name])
  end
  local parts = {}
  for i, name in ipairs(names) do
    local text = tostring(params[name])
    if string.find(text, "[%s=\"]") or text == "" then text = string.format("%q", text) end
    parts[i] = name .. "=" .. text
  end
  return table.concat(parts, " ")
end

local function needs_mask(needs)
  local mask = 0
  if type(needs) ~= "table" then refuse("needs: must be a list, is a ", type(needs)) end
  for _, name in ipairs(needs) do
    if not needs_bits[name] then
      refuse("needs: unknown \"", tostring(name),
        "\"; known: match, plan, residency, keys, openings, work, active")
    end
    mask = bit.bor(mask, needs_bits[name])
  end
  return mask
end

-- `file`: the file's name without .lua, which is the script's, too; "" when it comes from none.
-- Names have no capitals and no hyphens, files may.
local function check_name(name, file)
  local wanted = string.gsub(string.lower(file), "-", "_")
  if file ~= "" and name ~= wanted then
    refuse("name: must be \"", wanted, "\", as its file's, is \"", name, "\"")
  end
end

local function check_shape(script, main, file)
  if script == nil then refuse("must return a table, returned nothing") end
  if type(script) ~= "table" then refuse("must return a table, returned a ", type(script)) end
  local kinds = {
    api = "number", name = "string", needs = "table", params = "table", init = "function",
    [main] = "function", observe = "function", export = "function", import = "function",
  }
  for _, key in ipairs(sorted_keys(script)) do
    if not kinds[key] then
      refuse("unknown key ", key, "; known: api, name, needs, params, init, ", main,
        ", observe, export, import")
    end
    if type(script[key]) ~= kinds[key] then
      refuse(key, ": must be a ", kinds[key], ", is a ", type(script[key]))
    end
  end
  if script.api ~= 1 then refuse("api: must be 1, is ", tostring(script.api)) end
  if not script.name then refuse("name: missing") end
  if not string.find(script.name, "^[a-z0-9_]+$") or #script.name > 63 then
    refuse("name: must be at most 63 of a-z, 0-9 and _, is \"", script.name, "\"")
  end
  if not script[main] then refuse(main, ": missing") end
  check_name(script.name, file)
end

-- Evaluates a loaded chunk as a script whose main function is named `main`, of this file. Returns
-- what C calls and what it tells others.
return function(chunk, main, overrides, file)
  setfenv(chunk, env)
  local script = chunk()
  check_shape(script, main, file)
  local params = script.params or {}
  local text = set_params(params, overrides)
  if script.init then script.init(params) end
  local needs = needs_mask(script.needs or {}) -- which may depend on params

  local decide = script[main]
  local function pick() return decide(request, view) end
  local function spill(preferred) return decide(request, view, preferred) end
  local observe = script.observe
  local notice = observe and function() observe(observation) end
  local rule = main == "pick" and type(params.spill) == "string" and params.spill or ""
  return main == "pick" and pick or spill, notice, script.export, script.import, script.name, needs,
    text, rule
end
