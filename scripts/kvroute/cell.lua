-- A cell: one policy on one fleet under one workload with one seed. It is data, and all that its
-- result depends on: the texts by their hashes, the program by its build. Equal cells have equal
-- addresses, whoever asks for them.
local ffi = require("kvroute.ffi")
local json = require("kvroute.json")
local schema = require("kvroute.schema")
local store = require("kvroute.store")
local workload = require("kvroute.workload")

local M = {}

local FORMAT = 1 -- of results: a new one runs every cell again

-- What turns a cell into a result, beside the binary.
local EXECUTORS = { "collect", "drift", "evidence", "ffi", "live", "policy", "simulate" }

---@class kvr.Cell
---@field spec table what the address is made of
---@field key string the address, 32 hexadecimal digits
---@field texts table<string, string> of its scripts, by hash
---@field policy string label
---@field at table<string, any> where on the axes
---@field seed integer
---@field regime "closed"|"open"

---@class kvr.Build
---@field simulated string of what decides simulated results
---@field live string of the whole program
---@field abi integer of scripts

-- This binary; kvroute run sets it.
M.build = { simulated = "none", live = "none", abi = 1 } ---@type kvr.Build

local executors
local function executors_hash()
  if not executors then
    local texts = {}
    for i, name in ipairs(EXECUTORS) do
      local path = package.searchpath("kvroute." .. name, package.path)
      texts[i] = path and store.read_file(path) or ""
    end
    executors = ffi.hash64(table.concat(texts, "\0"))
  end
  return executors
end

---@param parts {fleet: table, workload: table, policy: kvr.Policy, router: table, slo: table,
---  measure: table, collect: table[], seed: integer, at: table}
---@return kvr.Cell
function M.new(parts)
  local live = parts.fleet.kind ~= "simulated"
  local texts = {}
  for hash, text in pairs(parts.policy.texts) do texts[hash] = text end
  local collect = json.list({})
  for i, each in ipairs(parts.collect or {}) do
    collect[i] = { name = each.name, hash = each.hash }
    texts[each.hash] = each.text
  end
  local spec = {
    format = FORMAT, executors = executors_hash(),
    build = live and M.build.live or M.build.simulated, abi = M.build.abi,
    fleet = parts.fleet, router = parts.router, workload = parts.workload,
    measure = parts.measure, slo = parts.slo, collect = collect, seed = parts.seed,
    policy = parts.policy.script, spill = parts.policy.spill or json.null,
  }
  return {
    spec = spec, key = ffi.hash128(json.encode(spec)), texts = texts,
    policy = parts.policy.label, at = schema.copy(parts.at), seed = parts.seed,
    regime = workload.regime(parts.workload),
  }
end

---"skew 1.4, users 32", in the order of the axes.
---@param at table<string, any>
---@param axes string[]
---@return string
function M.place(at, axes)
  local parts = {}
  for _, axis in ipairs(axes) do
    if at[axis] ~= nil then parts[#parts + 1] = ("%s %s"):format(axis, tostring(at[axis])) end
  end
  return table.concat(parts, ", ")
end

return M
