-- Child processes that cannot outlive the tests: each is killed and reaped by its own id at the end
-- of a test (kill_all), and by the kernel should the tests themselves die.
local ffi = require("ffi")
local fcntl = require("posix.fcntl")
local posix_wait = require("posix.sys.wait")
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local unistd = require("posix.unistd")
local bit = require("bit")
local loop = require("e2e.support.loop")

ffi.cdef([[
  int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
]])
local PR_SET_PDEATHSIG = 1

local M = {}
M.TRACED = { ASAN_OPTIONS = "detect_leaks=0" } -- the look for leaks fails under strace
local Process = {}
Process.__index = Process

local running = {}

local function redirect(path, to)
  local fd = assert(fcntl.open(path, bit.bor(fcntl.O_WRONLY, fcntl.O_CREAT, fcntl.O_TRUNC), 384))
  unistd.dup2(fd, to)
  unistd.close(fd)
end

-- As systemd does: from descriptor 3 on, with variables that say so (sd_listen_fds(3)).
local function hand_over(sockets, names, more)
  local high = {}
  for i, fd in ipairs(sockets) do high[i] = fcntl.fcntl(fd, fcntl.F_DUPFD, 3 + #sockets) end
  for i, fd in ipairs(high) do
    unistd.dup2(fd, 2 + i)
    unistd.close(fd)
  end
  stdlib.setenv("LISTEN_PID", tostring(unistd.getpid()))
  stdlib.setenv("LISTEN_FDS", tostring(#sockets + (more or 0)))
  if names then stdlib.setenv("LISTEN_FDNAMES", names) end
end

local function run_child(argv, options)
  ffi.C.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
  signal.signal(signal.SIGPIPE, signal.SIG_DFL)
  for name, value in pairs(options.env or {}) do stdlib.setenv(name, value) end
  if options.directory then unistd.chdir(options.directory) end
  if options.sockets then     hand_over(options.sockets, options.socket_names, options.more)
  end
  redirect(options.out, 1)
  redirect(options.err, 2)
  unistd.execp(argv[1], { [0] = argv[1], unpack(argv, 2) })
  io.stderr:write("cannot run " .. argv[1] .. "\n")
  unistd._exit(127)
end

---Starts argv[1] with these arguments.
---@param options table out and err: files for its output; env: additional variables; directory;
---  sockets: descriptors to hand over as systemd does; socket_names: theirs, with colons between;
---  more: how many more are said to be there
function M.start(argv, options)
  local pid = assert(unistd.fork())
  if pid == 0 then
    local ok, why = pcall(run_child, argv, options)
    if not ok then io.stderr:write(tostring(why), "\n") end
    unistd._exit(126)
  end
  local self = { pid = pid, out = options.out, err = options.err, name = argv[1] }
  setmetatable(self, Process)
  running[self] = true
  return self
end

local function read(path)
  local file = io.open(path, "rb")
  if not file then return "" end
  local text = file:read("*a")
  file:close()
  return text
end

function Process:stdout() return read(self.out) end
function Process:stderr() return read(self.err) end

-- Looks whether it has ended; notes how.
local function look(self, option)
  if self.ended then return self.ended end
  local pid, how, status = posix_wait.wait(self.pid, option)
  if pid == self.pid and (how == "exited" or how == "killed") then
    self.ended, self.status = how, status
    running[self] = nil
  end
  return self.ended
end

---From now on SIGTERM comes with each of these system calls of its main thread: those that set up
---and give up what a signal does, and those of a process's last steps. Not the ones that a handler
---makes, which would never get done. Start it with M.TRACED as its environment.
function Process:nag()
  local calls = "rt_sigaction,rt_sigprocmask,close,munmap,exit_group"
  local path = self.err .. ".strace"
  local nagging = M.start({ "strace", "-p", tostring(self.pid), "-o", "/dev/null", "-e",
    "trace=" .. calls, "-e", "inject=" .. calls .. ":signal=SIGTERM" },
    { out = path, err = path })
  loop.wait(function() return nagging:stderr():find("attached") end, 5, "strace to attach")
  return nagging
end

function Process:alive()
  return not look(self, posix_wait.WNOHANG)
end

---Waits for a line of its standard output that has the pattern; returns the captures.
function Process:wait_line(pattern, seconds)
  local found
  loop.wait(function()
    found = { self:stdout():match(pattern) }
    if not found[1] and not self:alive() then
      error(("%s ended (%s %d): %s"):format(self.name, self.ended, self.status, self:stderr()), 0)
    end
    return found[1]
  end, seconds, ("a line like %q of %s"):format(pattern, self.name))
  return unpack(found)
end

function Process:signal(number)
  if self:alive() then signal.kill(self.pid, number) end
end

---Waits for its end. Returns "exited" or "killed", and the code or the signal.
function Process:wait(seconds)
  loop.wait(function() return not self:alive() end, seconds, self.name .. " to end")
  return self.ended, self.status
end

function Process:kill()
  if not self:alive() then return end
  signal.kill(self.pid, signal.SIGKILL)
  look(self, 0)
end

---Resident memory in bytes.
function Process:rss()
  return tonumber(read(("/proc/%d/status"):format(self.pid)):match("VmRSS:%s+(%d+)")) * 1024
end

---For the end of a test.
function M.kill_all()
  for self in pairs(running) do self:kill() end
end

return M
