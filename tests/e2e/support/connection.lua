-- One end of a TCP connection on the loop: bytes out are queued and sent as the peer takes them,
-- bytes in go to on_bytes, and the peer's end is noted: "fin" or "reset".
local errno = require("posix.errno")
local fcntl = require("posix.fcntl")
local poll = require("posix.poll").poll
local socket = require("posix.sys.socket")
local unistd = require("posix.unistd")
local bit = require("bit")
local loop = require("e2e.support.loop")

local M = {}
local Connection = {}
Connection.__index = Connection

M.BACKLOG = 128 -- connections that wait to be accepted

local READ_BYTES = 65536
local CONNECT_MS = 10000
local open = {} -- all that are open, for close_all

---No child process may hold a test's socket open, and nothing may block but the loop.
function M.prepare(fd)
  fcntl.fcntl(fd, fcntl.F_SETFD, fcntl.FD_CLOEXEC)
  fcntl.fcntl(fd, fcntl.F_SETFL, bit.bor(fcntl.fcntl(fd, fcntl.F_GETFL), fcntl.O_NONBLOCK))
end

---Splits "host:port".
function M.parse(address)
  local host, port = address:match("^(.+):(%d+)$")
  return { family = socket.AF_INET, addr = host, port = tonumber(port) }
end

local function new(fd)
  socket.setsockopt(fd, socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
  local self = setmetatable({
    fd = fd,
    out = {},        -- pieces not sent yet
    out_bytes = 0,   -- in them
    sent = 0,        -- bytes the kernel has taken
    received = 0,
    on_bytes = nil,  -- called with each piece
    on_end = nil,    -- called once when the peer ended
    ended = nil,     -- "fin" or "reset"
    ended_at = nil,
    reading = true,
  }, Connection)
  open[self] = true
  self:update()
  return self
end

-- Whoever listens may have its backlog full, and then this takes for ever.
local function finish_connecting(fd, address)
  local ready = poll({ [fd] = { events = { OUT = true } } }, CONNECT_MS)
  if ready ~= 1 then return nil, ("nobody accepts within %d ms"):format(CONNECT_MS) end
  return socket.connect(fd, M.parse(address)) -- tells how it went
end

---Connects; on loopback this does not take long enough to need the loop.
---@param address string host:port
---@param receive_buffer? integer bytes the kernel may hold for a slow reader
---@return table? connection, string? error
function M.connect(address, receive_buffer)
  local fd = assert(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
  if receive_buffer then
    socket.setsockopt(fd, socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
  end
  M.prepare(fd)
  local ok, message, code = socket.connect(fd, M.parse(address))
  if code == errno.EINPROGRESS then ok, message = finish_connecting(fd, address) end
  if not ok then
    unistd.close(fd)
    return nil, message
  end
  return new(fd)
end

---Begins to connect, and does not care whether that ends.
function M.begin(address)
  local fd = assert(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
  M.prepare(fd)
  socket.connect(fd, M.parse(address))
  local self = setmetatable({ fd = fd, out = {} }, Connection)
  open[self] = true
  return self
end

-- Below the ports that the kernel gives to clients, so that a listener can stop and come back on
-- its own. (posix's getsockname cannot be asked which port the kernel chose: the length it passes
-- is not set.)
local PORT_MIN, PORT_MAX = 20000, 32000
local next_port = PORT_MIN + (unistd.getpid() * 97) % (PORT_MAX - PORT_MIN)

---Listens on a port of 127.0.0.1: a free one for port 0.
---@return integer fd, integer port
function M.listen(port)
  local fd = assert(socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0))
  socket.setsockopt(fd, socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
  local ok, why
  for _ = 1, port == 0 and 1000 or 1 do
    local wanted = port
    if port == 0 then
      next_port = next_port < PORT_MAX and next_port + 1 or PORT_MIN
      wanted = next_port
    end
    ok, why = socket.bind(fd, { family = socket.AF_INET, addr = "127.0.0.1", port = wanted })
    if ok then
      assert(socket.listen(fd, M.BACKLOG))
      M.prepare(fd)
      return fd, wanted
    end
  end
  error(why)
end

---@return table? connection nil when nobody waits
function M.accept(listening)
  local fd = socket.accept(listening)
  if not fd then return nil end
  M.prepare(fd)
  return new(fd)
end

function Connection:update()
  if not self.fd then return end
  local readable = self.reading and not self.ended and function() self:read() end or nil
  local writable = self.out[1] and function() self:flush() end or nil
  if readable or writable then
    loop.watch(self.fd, readable, writable)
  else
    loop.forget(self.fd)
  end
end

function Connection:note_end(how)
  if self.ended then return end
  self.ended, self.ended_at = how, loop.now()
  self:update()
  if self.on_end then self.on_end(how) end
end

function Connection:read()
  local bytes, _, code = socket.recv(self.fd, READ_BYTES)
  if not bytes then
    if code ~= errno.EAGAIN and code ~= errno.EINTR then self:note_end("reset") end
  elseif #bytes == 0 then
    self:note_end("fin")
  else
    self.received = self.received + #bytes
    if self.on_bytes then self.on_bytes(bytes) end
  end
end

function Connection:flush()
  while self.fd and self.out[1] do
    local piece = self.out[1]
    local taken, _, code = socket.send(self.fd, piece)
    if not taken then
      if code == errno.EAGAIN or code == errno.EINTR then break end
      self.out, self.out_bytes = {}, 0
      self:note_end("reset")
      return
    end
    self.sent = self.sent + taken
    self.out_bytes = self.out_bytes - taken
    if taken == #piece then
      table.remove(self.out, 1)
    else
      self.out[1] = piece:sub(taken + 1)
    end
  end
  if self.closing and not self.out[1] then
    self.closing()
    self.closing = nil
  end
  self:update()
end

function Connection:send(bytes)
  if not self.fd or #bytes == 0 then return end
  self.out[#self.out + 1] = bytes
  self.out_bytes = self.out_bytes + #bytes
  self:flush()
end

---Stops taking bytes, so that the peer has to wait.
function Connection:pause()
  self.reading = false
  self:update()
end

function Connection:resume()
  self.reading = true
  self:update()
end

---Nothing more will be sent; the peer may still send. After what is queued.
function Connection:half_close()
  local function act() socket.shutdown(self.fd, socket.SHUT_WR) end
  if self.out[1] then self.closing = act else act() end
end

---Closes with a reset, at once.
function Connection:reset()
  if not self.fd then return end
  socket.setsockopt(self.fd, socket.SOL_SOCKET, socket.SO_LINGER, 1, 0)
  self:close()
end

---Closes at once. Bytes that the kernel has not taken are lost.
function Connection:close()
  if not self.fd then return end
  loop.forget(self.fd)
  unistd.close(self.fd)
  self.fd = nil
  open[self] = nil
end

---For the end of a test.
function M.close_all()
  for connection in pairs(open) do
    connection:close()
  end
end

return M
