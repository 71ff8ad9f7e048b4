-- Child processes with lines going both ways: descriptor 0 takes ours, 3 or another has theirs.
-- They die with this process, whatever ends it. What they write to stderr is kept for when they
-- fail.
local fcntl = require("posix.fcntl")
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local unistd = require("posix.unistd")
local wait = require("posix.sys.wait")
local poll = require("posix.poll")
local ffi = require("kvroute.ffi")

local TAIL_BYTES = 2000 -- of stderr in a message
local READ_BYTES = 65536
local POLL_MS = 200
local LINES = 3 -- the descriptor of a worker's answers

---@class kvr.Process
---@field pid integer
---@field fd integer where its lines come from
local Process = {}
Process.__index = Process

local M = {}

local function run_child(argv, input, output, errors, lines)
  ffi.die_with_parent()
  signal.signal(signal.SIGINT, signal.SIG_IGN) -- ours to handle: we end them
  unistd.dup2(input, 0)
  unistd.dup2(errors, 1)
  unistd.dup2(errors, 2)
  if output == lines then
    fcntl.fcntl(lines, fcntl.F_SETFD, 0)
  else
    unistd.dup2(output, lines)
  end
  unistd.execp(argv[1], { [0] = argv[1], unpack(argv, 2) })
  io.stderr:write("cannot run " .. argv[1] .. "\n")
  unistd._exit(127)
end

local function keep_from_children(...)
  for _, fd in ipairs({ ... }) do fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC) end
end

---@param argv string[]
---@param lines integer? the descriptor that its lines come from; 3
---@param env table<string, string>? more variables
---@return kvr.Process
function M.start(argv, lines, env)
  local errors, path = stdlib.mkstemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-XXXXXX")
  assert(errors, path)
  unistd.unlink(path)
  local input, to_child = assert(unistd.pipe())
  local from_child, output = assert(unistd.pipe())
  keep_from_children(errors, input, to_child, from_child, output)
  local pid = assert(unistd.fork())
  if pid == 0 then
    for name, value in pairs(env or {}) do stdlib.setenv(name, value) end
    pcall(run_child, argv, input, output, errors, lines or LINES)
    unistd._exit(126)
  end
  unistd.close(input)
  unistd.close(output)
  return setmetatable({
    pid = pid, fd = from_child, to = to_child, errors = errors, rest = "",
  }, Process)
end

---@param line string
---@return boolean # false: it has gone
function Process:send(line)
  local text, at = line .. "\n", 1
  while at <= #text do
    local n = unistd.write(self.to, text:sub(at))
    if not n then return false end
    at = at + n
  end
  return true
end

---Reads what there is, to be called when `fd` is readable.
---@return string? line a whole one, if there is one now
---@return boolean? ended
function Process:receive()
  local bytes = unistd.read(self.fd, READ_BYTES)
  if bytes == "" then return nil, true end
  self.rest = self.rest .. (bytes or "")
  return self:buffered()
end

---Waits for a line with this pattern.
---@param pattern string
---@param seconds number
---@param tick (fun())? called now and then meanwhile
---@return string? ... captures; nil: it ended, or took too long
function Process:wait_line(pattern, seconds, tick)
  local fds = { [self.fd] = { events = { IN = true } } }
  local until_ = os.time() + seconds
  local line = self:buffered()
  while line or (not self.ended and os.time() <= until_) do
    if line and line:find(pattern) then return line:match(pattern) end
    line = self:buffered()
    if tick then tick() end
    if not line and (poll.poll(fds, POLL_MS) or 0) > 0 then line, self.ended = self:receive() end
  end
end

---@return string? # a whole line that has been read already
function Process:buffered()
  local line, rest = self.rest:match("^(.-)\n(.*)$")
  if line then self.rest = rest end
  return line
end

local function tail(fd)
  local size = unistd.lseek(fd, 0, unistd.SEEK_END)
  unistd.lseek(fd, math.max(0, size - TAIL_BYTES), unistd.SEEK_SET)
  return (unistd.read(fd, TAIL_BYTES) or ""):gsub("%s+$", "")
end

---Asks it to end in order, and ends it after some seconds all the same.
---@param seconds number
---@return string # as finish
function Process:ask_to_end(seconds)
  signal.kill(self.pid, signal.SIGTERM)
  self:wait_line("^%z$", seconds) -- a line that never comes: until it has ended
  return self:finish(not self.ended)
end

---Ends it if it has not ended, and lets go of it.
---@param kill boolean?
---@return string # how it ended, and the end of what it wrote to stderr
function Process:finish(kill)
  if kill then signal.kill(self.pid, signal.SIGKILL) end
  unistd.close(self.to)
  local _, how, status = wait.wait(self.pid)
  local said = tail(self.errors)
  unistd.close(self.fd)
  unistd.close(self.errors)
  local end_ = how == "killed" and "was killed by signal " .. status
    or "exited with " .. tostring(status)
  return said == "" and end_ or end_ .. ": " .. said
end

return M
