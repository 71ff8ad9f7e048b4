-- How the requests of a key follow each other, as the simulator draws them: turns of threads, and
-- the variation of the gaps between its requests.
local ffi = require("kvroute.ffi")
local key_shares = require("kvroute.key_shares")
local schema = require("kvroute.schema")
local stats = require("kvroute.stats")

local M = {
  FEWEST = 50, -- requests of a key that say something of its gaps
}

---Of the first so many threads.
---@param spec table of a cell whose keys come in threads
---@param count integer
---@return number mean turns of a thread
---@return number several the part of all requests whose thread has two or more
function M.turns(spec, count)
  local C, workload = ffi.simulator(), key_shares.workload(spec)
  local request, turns, several = ffi.new("struct kvr_workload_request"), 0, 0
  for user = 0, count - 1 do
    local own = 0
    while C.kvr_workload_turn(workload, user, own, request) do own = own + 1 end
    turns, several = turns + own, several + (own > 1 and own or 0)
  end
  return turns / count, several / turns
end

---The variation of the gaps of each key that has enough of them, among so many requests.
---@param spec table of a cell in an open loop
---@param requests integer
---@return number[] # in no order
function M.variations(spec, requests)
  local C, workload = ffi.simulator(), key_shares.workload(spec)
  local arrival, request = ffi.new("struct kvr_arrival"), ffi.new("struct kvr_workload_request")
  local last, gaps, order = {}, {}, {}
  for _ = 1, requests do
    if not C.kvr_workload_next(workload, arrival) then break end
    C.kvr_workload_turn(workload, arrival.user, arrival.turn, request)
    local key, at = tonumber(request.session), tonumber(arrival.due_ns)
    if not gaps[key] then
      gaps[key], order[#order + 1] = {}, key
    else
      table.insert(gaps[key], at - last[key])
    end
    last[key] = at
  end
  local out = {}
  for _, key in ipairs(order) do
    if #gaps[key] >= M.FEWEST then
      out[#out + 1] = stats.deviation(gaps[key]) / stats.mean(gaps[key])
    end
  end
  return out
end

---The same of one key alone, whose threads begin `apart` gaps between turns after one another.
---@param spec table
---@param apart number
---@param requests integer
---@return number
function M.variation_alone(spec, apart, requests)
  local alone = schema.copy(spec)
  local w = schema.copy(alone.workload)
  local mean = M.turns(spec, 20000)
  w.keys, w.population, w.whales, w.weights = 1, nil, nil, nil
  w.rate = 1000 / w.thread_gap_ms / apart * mean
  alone.workload = w
  return M.variations(alone, requests)[1]
end

return M
