-- A policy of an experiment: the texts of its script and of its spill rule, by name or by path,
-- with their params. What the C side refuses is refused here, before anything runs.
local bit = require("bit")
local ffi = require("kvroute.ffi")
local given = require("kvroute.given")
local schema = require("kvroute.schema")
local watch = require("kvroute.watch")

local M = {}

local MOST = 256 * 1024 -- bytes of a script: KVR_SCRIPT_FILE_MAX

-- Folder of the shipped policies; kvroute run sets it.
M.folder = "policies"

---@class kvr.ScriptChoice
---@field [1] string name of a shipped script, or a path
---@field params table<string, string|number|boolean>?
---@field label string? a policy's, as tables and figures call it
---@field spill string|kvr.ScriptChoice|nil a policy's; the policy's own choice otherwise

---@class kvr.Script what decides, as data
---@field name string
---@field hash string of the text
---@field params table<string, string|number|boolean>

---@class kvr.Policy
---@field label string
---@field script kvr.Script
---@field spill kvr.Script?
---@field texts table<string, string> by hash

local function path_of(choice, sub_folder)
  if choice:find("/", 1, true) or choice:find("%.lua$") then return choice end
  return ("%s%s/%s.lua"):format(M.folder, sub_folder, choice)
end

local function read(choice, sub_folder, texts)
  if type(choice[1]) ~= "string" then error("a policy or spill rule is { NAME, ... }", 0) end
  local path = path_of(choice[1], sub_folder)
  local text, why = given.read(path, MOST)
  watch.add(path, text)
  if not text then error(("there is no script %s: %s"):format(choice[1], why), 0) end
  local hash = ffi.hash64(text)
  texts[hash] = text
  return {
    name = path:match("([^/]*)%.lua$") or path:match("[^/]*$"),
    hash = hash, params = schema.copy(choice.params or {}),
  }
end

local bench -- a small simulation that scripts are tried in
local function try(role, script, text)
  local C = ffi.simulator()
  local failure = ffi.new("struct kvr_error")
  if not bench then
    local options = ffi.new("struct kvr_sim_options")
    C.kvr_sim_defaults(options)
    options.replicas = 1
    bench = ffi.gc(C.kvr_sim_create(options, failure), C.kvr_sim_destroy)
  end
  M.load(bench, role, script, text)
  return bench
end

---Puts a script in force in a simulation.
---@param sim ffi.cdata*
---@param role "policy"|"spill"
---@param script kvr.Script
---@param text string
function M.load(sim, role, script, text)
  local names = schema.names(script.params)
  local kept = {} -- alive until the call is over
  local params = ffi.new("struct kvr_sim_param[?]", math.max(#names, 1))
  for i, name in ipairs(names) do
    kept[#kept + 1], kept[#kept + 2] = name, tostring(script.params[name])
    params[i - 1].key, params[i - 1].value = kept[#kept - 1], kept[#kept]
  end
  local failure = ffi.new("struct kvr_error")
  if ffi.simulator().kvr_sim_load(sim, role, script.name, text, params, #names, failure) ~= 0 then
    error(ffi.string(failure.text), 0)
  end
end

---What it asks for, as bits of enum kvr_script_needs.
---@param found kvr.Policy
---@return integer
function M.needs(found)
  local sim = try("policy", found.script, found.texts[found.script.hash])
  return ffi.simulator().kvr_sim_script_needs(sim, "policy")
end

-- As rows have it.
local function params_hash(role, script, texts)
  local sim = try(role, script, texts[script.hash])
  return bit.tohex(ffi.simulator().kvr_sim_params_hash(sim, role))
end

---Of all params, the scripts' own and those set over them, as rows name them.
---@param found kvr.Policy
---@return string policy 16 hexadecimal digits
---@return string? spill nil: there is none
function M.params_hashes(found)
  return params_hash("policy", found.script, found.texts),
    found.spill and params_hash("spill", found.spill, found.texts)
end

local function params_text(params)
  local parts = {}
  for _, name in ipairs(schema.names(params)) do
    if name ~= "spill" then parts[#parts + 1] = ("%s=%s"):format(name, tostring(params[name])) end
  end
  return #parts > 0 and " " .. table.concat(parts, " ") or ""
end

local function label_of(choice, script, spill)
  if choice.label then return choice.label end
  local label = script.name .. params_text(script.params)
  if not choice.spill or not spill then return label end
  return ("%s /%s%s"):format(label, spill.name, params_text(spill.params))
end

---@param choice string|kvr.ScriptChoice
---@return kvr.Policy
function M.resolve(choice)
  if type(choice) == "string" then choice = { choice } end
  schema.check("a policy", choice,
    { "string", params = "table?", label = "string?", spill = "string|table?" })
  local texts = {}
  local script = read(choice, "", texts)
  local sim = try("policy", script, texts[script.hash])
  local rule = choice.spill or ffi.string(ffi.simulator().kvr_sim_default_spill(sim))
  if type(rule) == "string" then rule = { rule } end
  local spill
  if rule[1] ~= "" then
    spill = read(rule, "/spill", texts)
    try("spill", spill, texts[spill.hash])
  end
  return { label = label_of(choice, script, spill), script = script, spill = spill, texts = texts }
end

return M
