-- How long a process has done nothing that one hears of, by its own time: the CPU time it has used,
-- and the time that it slept of its own accord. A machine that is too busy to let it run, or to
-- bring its memory back, adds nothing: what is slow there is not the process.
local unistd = require("posix.unistd")

local M = {}
local Pulse = {}
Pulse.__index = Pulse

-- Whoever looks may have been kept waiting, too: between two looks no more than this is counted.
local LOOK_S = 1

local TICKS = unistd.sysconf(unistd._SC_CLK_TCK) -- a second

---What the kernel says of a process: its state (R runs or could, S sleeps, D waits for a disk, T is
---stopped) and the CPU seconds it has used.
---@param pid integer
---@return string? state nil: there is none
---@return number? cpu_s
function M.read(pid)
  local file = io.open(("/proc/%d/stat"):format(pid))
  if not file then return nil end
  local line = file:read("*l")
  file:close()
  -- Its name, in parentheses, may hold anything; utime and stime are the 14th and 15th of all.
  local state, user, system = (line or ""):match(
    ".*%) (%a)" .. (" %-?%d+"):rep(10) .. " (%d+) (%d+)")
  if not state then return nil end
  return state, (user + system) / TICKS
end

---@param pid integer
---@param read? fun(pid: integer): string?, number?  M.read
function M.new(pid, read)
  return setmetatable({ pid = pid, read = read or M.read, slept_s = 0, cpu_s = 0 }, Pulse)
end

---Something was heard of it.
---@param now number seconds
function Pulse:heard(now)
  local _, cpu_s = self.read(self.pid)
  self.since_cpu_s = cpu_s or self.cpu_s
  self.cpu_s, self.slept_s, self.looked = self.since_cpu_s, 0, now
end

---Looks at it: to be called several times a second.
---@param now number
---@return number silent_s since something was heard
function Pulse:silent(now)
  local state, cpu_s = self.read(self.pid)
  local passed = math.min(now - self.looked, LOOK_S)
  self.looked = now
  if state == "S" and cpu_s == self.cpu_s then self.slept_s = self.slept_s + passed end
  self.cpu_s = cpu_s or self.cpu_s
  return self.slept_s + self.cpu_s - self.since_cpu_s
end

return M
