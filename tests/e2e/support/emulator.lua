-- Emulated replicas in a process of their own: `kvroute fleet` on free ports, with a listener for
-- orders that no fault touches.
--
--   local emulator = Emulator.start({ replicas = 2, args = { "--time-scale", "10" } })
--   emulator.addresses[1]                     host:port of the first; emulator.urls as URLs
--   emulator:fault("stall;after=3", 1)        of the first; without a number, of all
--   emulator:heal()
--   emulator:log(1)                           what has reached it, decoded, oldest first
--   after_each(Emulator.finish)               checks that each ended well
local ffi = require("ffi")
local assert = require("luassert")
local cjson = require("cjson")
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local unistd = require("posix.unistd")
local connection = require("e2e.support.connection")
local http = require("e2e.support.http")
local sse = require("e2e.support.sse")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

ffi.cdef("uint64_t XXH64(const void *input, size_t length, uint64_t seed);")
local xxhash = ffi.load("xxhash")

local M = {}
local Emulator = {}
Emulator.__index = Emulator

local running = {}

M.build = os.getenv("KVR_BUILD") or unistd.getcwd() .. "/build"
M.binary = M.build .. "/kvroute"

---@param options? table replicas: how many (1); args: further arguments of `kvroute fleet`;
---  env: variables over those of a test
function M.start(options)
  options = options or {}
  local folder = assert(stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-emu-XXXXXX"))
  local argv = { M.binary, "fleet", "--port-base", "0", "--control", "127.0.0.1:0",
    "--replicas", tostring(options.replicas or 1) }
  for _, arg in ipairs(options.args or {}) do argv[#argv + 1] = tostring(arg) end
  local self = setmetatable({ folder = folder, addresses = {}, urls = {} }, Emulator)
  running[self] = true
  self.process = process.start(argv, {
    out = folder .. "/out",
    err = folder .. "/err",
    env = options.env or { ASAN_OPTIONS = "detect_leaks=1", UBSAN_OPTIONS = "print_stacktrace=1" },
  })
  self.process:wait_line("(ready)\n", 10)
  for index, address in self.process:stdout():gmatch("replica (%d+) (%S+)\n") do
    self.addresses[index + 1] = address
    self.urls[index + 1] = "http://" .. address
  end
  self.control = self.process:stdout():match("control (%S+)\n")
  return self
end

---The first replica's answer.
function Emulator:post(path, body, headers)
  return http.request(self.addresses[1], { path = path, body = body, headers = headers })
end

-- The events of a streamed answer, and the answer.
function Emulator:stream(path, body)
  local answer = self:post(path, body)
  assert.equal(200, answer.status)
  return sse.events(answer:body()), answer
end

function Emulator:get(path, headers)
  return http.request(self.addresses[1], { path = path, headers = headers })
end

---A body for chat, with `more` fields.
function M.chat(content, more)
  local body = { model = "m", messages = { { role = "user", content = content } } }
  for key, value in pairs(more or {}) do body[key] = value end
  return body
end

---An order; `index` from 1, or nil for all replicas.
function Emulator:order(method, path, index, body)
  local target = ("%s%sreplica=%s"):format(path, path:find("?", 1, true) and "&" or "?",
    index and tostring(index - 1) or "all")
  local answer = http.request(self.control, { method = method, path = target, body = body })
  assert(answer.status < 300, ("%s: %d %s"):format(target, answer.status, answer:body()))
  return answer:body()
end

---@param fault string|table as emu_fault.h has it, or the same as a table
function Emulator:fault(fault, index)
  self:order("POST", "/fault", index, fault)
end

function Emulator:heal(index)
  self:order("DELETE", "/fault", index)
end

---The requests that have reached it, oldest first; those still being answered come last.
function Emulator:log(index)
  local entries = {}
  for line in self:order("GET", "/log", index):gmatch("([^\n]+)\n") do
    entries[#entries + 1] = cjson.decode(line)
  end
  return entries
end

---Waits until an entry of its log satisfies `condition`, and returns it.
function Emulator:wait_log(condition, index, seconds)
  return loop.wait(function()
    for _, entry in ipairs(self:log(index)) do
      if condition(entry) then return entry end
    end
  end, seconds or 2, "a line of the replica's log")
end

---Figures of each replica: answering, running, waiting, late_p99_us, ...
function Emulator:replicas()
  return cjson.decode(self:order("GET", "/replicas"))
end

---The engine has nothing left to do.
function Emulator:wait_idle(seconds)
  loop.wait(function()
    for _, each in ipairs(self:replicas()) do
      if each.answering + each.running + each.waiting > 0 then return false end
    end
    return true
  end, seconds or 2, "idle engines")
end

---SIGTERM, and a clean end at once.
function Emulator:stop()
  self.process:signal(signal.SIGTERM)
  local how, code = self.process:wait(5)
  assert(how == "exited" and code == 0,
    ("the emulator %s with %s: %s"):format(how, tostring(code), self.process:stderr()))
end

---SIGKILL: no word to anybody.
function Emulator:kill()
  running[self] = nil
  self.process:kill()
  os.execute("rm -rf '" .. self.folder .. "'")
end

---The hash by which the log names a body.
function M.xxh64(text)
  local hash = xxhash.XXH64(text, #text, 0)
  return ("%08x%08x"):format(tonumber(hash / 2^32), tonumber(hash % 2^32))
end

---For after_each.
function M.finish()
  local problem
  connection.close_all()
  for self in pairs(running) do
    running[self] = nil
    local ok, why = pcall(self.stop, self)
    if not ok then problem = problem or why end
    self.process:kill()
    if not os.getenv("KVR_KEEP") then os.execute("rm -rf '" .. self.folder .. "'") end
  end
  if problem then error(problem, 0) end
end

return M
