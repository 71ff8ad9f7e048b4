-- One run of the simulator, as a test asks for it: the study's router and workload, changed by a
-- function; and the same over several seeds.
local ffi = require("kvroute.ffi")

local M = {}

local ROLES = { policy = "policies/", spill = "policies/spill/" }

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function load(sim, role, name, params)
  local failure = ffi.new("struct kvr_error")
  local text = read(ROLES[role] .. name .. ".lua")
  local list, count = ffi.new("struct kvr_sim_param[8]"), 0 -- texts are of `params`, and stay
  for key, value in pairs(params or {}) do
    list[count].key, list[count].value = key, value
    count = count + 1
  end
  if ffi.simulator().kvr_sim_load(sim, role, name, text, list, count, failure) ~= 0 then
    error(ffi.string(failure.text))
  end
end

---@param scripts {policy: string, spill: string?, params: table<string, string>?}
---@param change fun(options: ffi.cdata*)?
---@return ffi.cdata* # struct kvr_sim_result
function M.run(scripts, change)
  local C = ffi.simulator()
  local options, failure = ffi.new("struct kvr_sim_options"), ffi.new("struct kvr_error")
  C.kvr_sim_defaults(options)
  options.index_ttl_ms, options.index_nodes = 57000, 16311
  if change then change(options) end
  local sim = C.kvr_sim_create(options, failure)
  if sim == nil then error(ffi.string(failure.text)) end
  for role in pairs(ROLES) do
    if scripts[role] then
      load(sim, role, scripts[role], role == "policy" and scripts.params)
    end
  end
  while C.kvr_sim_run(sim, -1ULL, 0) > 0 do end
  local result = ffi.new("struct kvr_sim_result")
  C.kvr_sim_result(sim, result)
  C.kvr_sim_destroy(sim)
  return result
end

local function median(values)
  table.sort(values)
  return values[math.ceil(#values / 2)]
end

---Medians over seeds of goodput, hit rate and the like.
---@param scripts {policy: string, spill: string?}
---@param seeds integer
---@param change fun(options: ffi.cdata*)?
---@return table<string, number> # goodput, hit_rate, spill_rate, busiest, honoured
function M.medians(scripts, seeds, change)
  local all = { goodput = {}, hit_rate = {}, spill_rate = {}, busiest = {}, honoured = {} }
  for seed = 1, seeds do
    local r = M.run(scripts, function(options)
      options.seed = seed
      if change then change(options) end
    end)
    all.goodput[seed] = r.goodput_per_s
    all.hit_rate[seed] = 100 * r.hit_rate
    all.spill_rate[seed] = 100 * r.spilled / r.requests
    all.busiest[seed] = 100 * r.busiest_share
    all.honoured[seed] = 100 * r.honoured
  end
  for name, values in pairs(all) do all[name] = median(values) end
  return all
end

---Fails unless low <= value <= high.
function M.within(value, low, high, what)
  if not (value >= low and value <= high) then
    error(("%s is %.3f, not between %g and %g"):format(what, value, low, high), 2)
  end
end

return M
