-- Load by clients that give up in every phase, or are hostile: bench_chaos as a process, and what
-- became of each of its requests.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

local M = {}
local Chaos = {}
Chaos.__index = Chaos

local count = 0

---Begins to send. Hostile clients do so under nice: theirs is a machine of their own.
---@param options table requests, concurrency, seed, abort (share), hostile, bytes, longs, seconds,
---  hold, as the program has them
function M.start(fleet, options)
  count = count + 1
  local path = ("%s/chaos.%d"):format(fleet.folder, count)
  local argv = { Fleet.build .. "/bench_chaos", (fleet.address:match(":(%d+)$")), "--out",
    path .. ".requests" }
  for name, value in pairs(options) do
    argv[#argv + 1] = "--" .. name
    if value ~= true then argv[#argv + 1] = tostring(value) end
  end
  if options.hostile then argv = { "nice", "-n", "19", unpack(argv) } end
  return setmetatable({
    path = path,
    process = process.start(argv, { out = path .. ".out", err = path .. ".err" }),
  }, Chaos)
end

function Chaos:running()
  return self.process:alive()
end

---Waits for its end.
---@return table sums as the program prints them
function Chaos:finish(seconds)
  loop.wait(function() return not self:running() end, seconds or 60, "the clients to end")
  local text = self.process:stdout()
  assert(text ~= "", "the clients said nothing: " .. self.process:stderr())
  return cjson.decode(text)
end

---What became of each request: calls back with id, phase, verdict, status.
function Chaos:each(visit)
  for line in io.lines(self.path .. ".requests") do
    local id, phase, verdict, status = line:match("^(%S+) (%S+) (%S+) (%d+)$")
    visit(id, phase, verdict, tonumber(status))
  end
end

return M
