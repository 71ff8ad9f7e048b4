-- Load from outside of the test's own process: replicas that cost nothing, and a client that keeps
-- a rate whatever happens, so that a router which stands for a while shows in its latencies.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local paced = require("kvroute.paced")
local process = require("e2e.support.process")

local M = {}
local Load = {}
Load.__index = Load

local count = 0

-- Where a helper's output goes: beside the others, gone with the test's process.
local function outputs(folder, name)
  count = count + 1
  local path = ("%s/%s.%d"):format(folder, name, count)
  return { out = path .. ".out", err = path .. ".err" }
end

---Starts replicas on free ports. They serve the model "bench".
---@param replicas integer
---@param arguments? string[] further ones of the program
---@return table urls
function M.replicas(replicas, arguments)
  local folder = Fleet.new_folder()
  local argv, urls = { Fleet.build .. "/bench_backend" }, {}
  for i = 1, replicas do argv[i + 1] = "0" end
  for _, argument in ipairs(arguments or {}) do argv[#argv + 1] = argument end
  local backend = process.start(argv, outputs(folder, "backend"))
  backend:wait_line("(ready)\n", 5)
  for port in backend:stdout():gmatch("port (%d+)\n") do
    urls[#urls + 1] = "http://127.0.0.1:" .. port
  end
  Fleet.remove_folder(folder)
  return urls
end

---Begins to send chat requests to the fleet.
---@param options table rate (a second), seconds, bytes (of a prompt), prompts (different ones)
function M.start(fleet, options)
  local argv = paced.argv(Fleet.binary, "http://" .. fleet.address, { rate = options.rate,
    seconds = options.seconds, bytes = options.bytes or 2000, prompts = options.prompts or 64 })
  return setmetatable({ process = process.start(argv, outputs(fleet.folder, "client")) }, Load)
end

function Load:running()
  return self.process:alive()
end

---Waits for its end.
---@return table result sent, answered, failed, late_p99_us, latency_p50_us, latency_p99_us
function Load:finish(seconds)
  loop.wait(function() return not self:running() end, seconds or 60, "the load to end")
  local out = self.process:stdout()
  assert(out ~= "", "the client said nothing: " .. self.process:stderr())
  local report = cjson.decode(out)
  return {
    sent = report.sent, answered = report.completed, failed = report.failed,
    late_p99_us = report.lateness.p99_ms * 1000, latency_p50_us = report.p50_e2el_ms * 1000,
    latency_p99_us = report.p99_e2el_ms * 1000,
  }
end

---For the result of one.
function M.assert_all_answered(result)
  assert(result.failed == 0, result.failed .. " requests failed")
  assert(result.sent == result.answered, "some were not answered")
end

return M
