-- Where requests go: engines under virtual time, emulated engines behind real sockets, or engines
-- that run somewhere. Each function gives plain data for a cell.
local ffi = require("kvroute.ffi")
local given = require("kvroute.given")
local json = require("kvroute.json")
local schema = require("kvroute.schema")
local watch = require("kvroute.watch")

local M = {}

local PROFILE_MOST = 2 ^ 20 -- bytes of a file, as kvroute replica takes

---@class kvr.SimulatedFleet
---@field profile string name of a built-in profile, or a file's path
---@field profile_set table? values over those of the profile, such as cache_generated = false
---@field replicas number? as many as the profile's study had
---@field slowdowns number[]? by replica: its steps take so many times as long
---@field weights number[]? by replica, of the router
---@field changes table[]? what happens when: { at_s = 100, replica = 3, kind = "restart" }
---@field authorities string? "host:port host:port ...", which place replicas on the ring as live
---@field ring_seed number? or else this places replicas on the ring; the seed's otherwise
---@field network_ms number? 0, one way
---@field router_ms number? 0, from a decision until the request leaves
---@field decision_ms number? 0, from the arrival until the decision
---@field decision_sigma number? 0, lognormal spread of that
---@field scrape_ms number? 1,000 between two readings of an engine's signals
---@field max_waiting number? requests queued in one engine
local simulated = {
  profile = "string", profile_set = "table?", replicas = "count?", slowdowns = "table?",
  weights = "table?", changes = "table?", authorities = "string?", ring_seed = "number?",
  network_ms = "number?", router_ms = "number?", decision_ms = "number?",
  decision_sigma = "number?", scrape_ms = "number?", max_waiting = "count?",
}

---@class kvr.EmulatedFleet
---@field profile string
---@field replicas number?
---@field time_scale number? 1, engine seconds a second
---@field port number? of the first replica, which places it on the ring; 0: any free ones
local emulated = {
  profile = "string", replicas = "count?", time_scale = "number?", port = "count?",
}

---@class kvr.UrlFleet
---@field urls string[]
---@field profile string? what the engines are, for the record
---@field reset string? command that empties their caches before each cell
local urls = { urls = "table", profile = "string?", reset = "string?" }

---Options of the simulator with a fleet's profile: its file is read as `kvroute replica` reads it.
---@param fleet {profile: string, profile_text: string?}
---@return ffi.cdata*? options struct kvr_sim_options
---@return string? why not
function M.with_profile(fleet)
  local C, name, text = ffi.simulator(), fleet.profile, fleet.profile_text
  local options, why = ffi.new("struct kvr_sim_options"), ffi.new("struct kvr_error")
  if text then
    if C.kvr_sim_read_profile(options, name, text, #text, why) == 0 then return options end
    return nil, ffi.string(why.text)
  end
  if C.kvr_sim_use_profile(options, name) == 0 then return options end
  return nil, ("there is no profile %s; kvroute replica --profile %s says which there are")
    :format(name, name)
end

-- A profile file's text is part of what decides a result: it travels with the cell.
local function read_profile(out)
  if out.profile:find("/", 1, true) or out.profile:find("%.lua$") then
    local text, why = given.read(out.profile, PROFILE_MOST)
    watch.add(out.profile, text)
    if not text then error("fleet: " .. why, 0) end
    out.profile_text = text
  end
  local options, why = M.with_profile(out)
  if not options then error("fleet: " .. why, 0) end
end

local function make(kind, options, types)
  local out = schema.copy(schema.check("fleet." .. kind, options, types))
  out.kind = kind
  if out.profile then read_profile(out) end
  return out
end

local BLOCK_TOKENS = 16

---What the caches of a fleet hold; nil where its profile is not known.
---@param fleet table
---@return number?
function M.capacity_tokens(fleet)
  local options = fleet.profile and M.with_profile(fleet)
  if not options then return nil end
  local profile = options.profile
  local replicas = fleet.urls and #fleet.urls or fleet.replicas or profile.replicas
  return replicas * profile.blocks * BLOCK_TOKENS
end

---@param options kvr.SimulatedFleet
---@return table
function M.simulated(options)
  local out = make("simulated", options, simulated)
  for i, change in ipairs(out.changes or {}) do
    schema.check("fleet.simulated: changes[" .. i .. "]", change,
      { at_s = "number", replica = "number", kind = "string", value = "number?" })
  end
  return out
end

---Emulated engines and a router in processes of their own on the loopback.
---@param options kvr.EmulatedFleet
---@return table
function M.emulated(options)
  return make("emulated", options, emulated)
end

---Engines that run already. A router of our own is started before them.
---@param options kvr.UrlFleet
---@return table
function M.urls(options)
  local out = make("urls", options, urls)
  json.list(out.urls)
  return out
end

return M
