-- How popular the keys of a workload truly are, and what is said of such numbers.
local ffi = require("kvroute.ffi")
local simulate = require("kvroute.simulate")

local M = {}

---The requests of a cell, as the simulator asks for them.
---@param spec table of a cell
---@return ffi.cdata* # struct kvr_workload, collected
function M.workload(spec)
  local C, failure, kept = ffi.simulator(), ffi.new("struct kvr_error"), {}
  local options = simulate.options(spec, kept)
  options.workload.bytes_per_token = options.profile.bytes_per_token
  options.workload.seed = spec.seed
  local workload = C.kvr_workload_create(options.workload, failure)
  if workload == nil then error(ffi.string(failure.text), 0) end
  return ffi.gc(workload, C.kvr_workload_destroy)
end

---The part of all requests that each key has, as the simulator draws them.
---@param spec table of a cell
---@return number[] # by key; they sum up to 1
function M.of(spec)
  local C, out = ffi.simulator(), {}
  local workload = M.workload(spec)
  for i = 1, C.kvr_workload_options(workload).keys do
    out[i] = C.kvr_workload_key_share(workload, i - 1)
  end
  return out
end

---0 where all have the same, to 1 where one has all.
---@param shares number[]
---@return number
function M.gini(shares)
  local sorted, sum, weighted = {}, 0, 0
  for i, share in ipairs(shares) do sorted[i] = share end
  table.sort(sorted)
  for i, share in ipairs(sorted) do
    sum, weighted = sum + share, weighted + i * share
  end
  return 2 * weighted / (#sorted * sum) - (#sorted + 1) / #sorted
end

---What the most popular ones have together.
---@param shares number[]
---@param part number of all keys, 0..1; at least one key
---@return number
function M.top(shares, part)
  local sorted, sum, all = {}, 0, 0
  for i, share in ipairs(shares) do sorted[i], all = share, all + share end
  table.sort(sorted, function(a, b) return a > b end)
  for i = 1, math.max(1, math.floor(part * #sorted + 0.5)) do sum = sum + sorted[i] end
  return sum / all
end

return M
