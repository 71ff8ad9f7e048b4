-- Recorded cells for specs, as the laboratory stores them: made from what a spec cares about.
local lfs = require("lfs")
local json = require("kvroute.json")
local store = require("kvroute.store")

local M = {}

local function merge(into, values)
  for name, value in pairs(values) do
    if type(value) == "table" and value[1] == nil and type(into[name]) == "table" then
      merge(into[name], value)
    else
      into[name] = value
    end
  end
  return into
end

local count = 0

---@class kvr.FakeCell
---@field policy string?
---@field seed integer?
---@field goodput number?
---@field workload string? its name
---@field key string? else one of its own
---@field cell table? over the spec
---@field result table? over the result

---@param what kvr.FakeCell
---@return table record
function M.record(what)
  count = count + 1
  local seed, goodput, name = what.seed or 1, what.goodput or 10, what.policy or "prefix_affinity"
  local workload = what.workload or "sessions(n=307,skew=0,turns=4,seed=%d,epoch=7)"
    .. "+closed(users=32,think=1~0,start=0,scale=1)"
  local open = not workload:find("+closed", 1, true)
  return {
    key = what.key or ("%032x"):format(count),
    cell = merge({
      format = 1, executors = "aa", build = "bb", abi = 1, seed = seed, spill = json.null,
      collect = json.list({}), fleet = { kind = "simulated", profile = "p" },
      router = { index_nodes = 100 }, measure = { seconds = 300, warmup_s = 50 },
      slo = { ttft_ms = 990, itl_ms = 24 },
      workload = { kind = "sessions", arrivals = open and "rate" or "closed" },
      policy = { name = name, hash = name, params = {} },
    }, what.cell or {}),
    result = merge({
      workload = workload:find("%d", 1, true) and workload:format(seed) or workload, profile = "p",
      requests = 100, success = 100, failed = 0, dropped = 0, unfinished = 0, good = goodput * 10,
      window_s = 250, goodput_per_s = goodput, throughput_per_s = goodput, prompt_tokens = 1000,
      cached_tokens = 500, hit_rate = 0.5, backlog = 0, spilled = 1, cold = 2, deflected = 3,
      late_ttft = 0, slow_itl = 0, busiest_share = 0.2, imbalance = 1, believed_tokens = 0,
      honoured_tokens = 0, preemptions = 0, ttft_p99_all = 5,
      ttft = { p50 = 100, p90 = 200, p95 = 250, p99 = 300, mean = 120 },
      itl = { p50 = 10, p90 = 12, p95 = 13, p99 = 15, mean = 11 },
      e2el = { p50 = 1000, p90 = 1200, p95 = 1300, p99 = 1500, mean = 1100 },
      evidence = { flags = json.list({}) },
    }, what.result or {}),
  }
end

---@param name string of a flag
---@param warning boolean?
---@return table evidence
function M.flag(name, warning)
  return { flags = json.list({ { name = name, text = "because", warning = warning } }) }
end

---Writes records into a new folder, which `finally` or `teardown` removes.
---@param records kvr.FakeCell[]
---@return string folder
function M.write(records)
  local folder = os.tmpname()
  os.remove(folder)
  assert(lfs.mkdir(folder))
  for i, what in ipairs(records) do
    store.write_file(("%s/%03d.json"):format(folder, i), json.encode(M.record(what)) .. "\n")
  end
  return folder
end

function M.remove(folder)
  os.execute("rm -r '" .. folder .. "'")
end

return M
