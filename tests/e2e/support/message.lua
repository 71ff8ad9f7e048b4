-- HTTP/1 messages as they come in, piece by piece. Strict about framing, so that a broken message
-- is an error of the test and not a surprise later; keeps every byte as it came.
local loop = require("e2e.support.loop")

local M = {}
local Message = {}
Message.__index = Message

---@param kind "request"|"response"
---@param no_body? boolean a response to HEAD
function M.new(kind, no_body)
  return setmetatable({
    kind = kind,
    no_body = no_body,
    pending = "",    -- bytes of the head so far, or behind the message
    raw = {},        -- all bytes of the message
    pieces = {},     -- of the body: { text, at }
    body_bytes = 0,
    headers = nil,   -- list of { name, value } once the head is there
    done = false,
    error = nil,
  }, Message)
end

function Message:header(name)
  name = name:lower()
  for _, header in ipairs(self.headers or {}) do
    if header[1]:lower() == name then return header[2] end
  end
end

---All values of that name, in order.
function Message:all(name)
  local values = {}
  for _, header in ipairs(self.headers or {}) do
    if header[1]:lower() == name:lower() then values[#values + 1] = header[2] end
  end
  return values
end

---The body so far.
function Message:body()
  local texts = {}
  for i, piece in ipairs(self.pieces) do texts[i] = piece.text end
  return table.concat(texts)
end

---The bytes so far, framing and all.
function Message:bytes()
  return table.concat(self.raw)
end

local function parse_head(self, head)
  local lines = {}
  for line in head:sub(1, -3):gmatch("(.-)\r\n") do lines[#lines + 1] = line end
  self.start_line = lines[1]
  if self.kind == "response" then
    local version, status, phrase = lines[1]:match("^HTTP/1%.([01]) (%d%d%d) ?(.*)$")
    assert(version, "no status line: " .. lines[1])
    self.version, self.status, self.phrase = tonumber(version), tonumber(status), phrase
  else
    local method, target, version = lines[1]:match("^(%u+) ([^ ]+) HTTP/1%.([01])$")
    assert(method, "no request line: " .. lines[1])
    self.method, self.target, self.version = method, target, tonumber(version)
  end
  self.headers = {}
  for i = 2, #lines do
    local name, value = lines[i]:match("^([^%s:]+):[ \t]*(.-)[ \t]*$")
    assert(name, "no header: " .. lines[i])
    self.headers[#self.headers + 1] = { name, value }
  end
end

-- What the head says of the body: "none", "sized", "chunked" or "close".
local function framing(self)
  local coding = self:header("transfer-encoding")
  local length = self:header("content-length")
  assert(not (coding and length), "both Transfer-Encoding and Content-Length")
  if self.kind == "response" and (self.no_body or self.status == 204 or self.status == 304) then
    return "none"
  end
  if coding then return "chunked" end
  if length then
    self.left = tonumber(length)
    return self.left == 0 and "none" or "sized"
  end
  return self.kind == "request" and "none" or "close"
end

local function take(self, count)
  local bytes = self.pending:sub(1, count)
  self.pending = self.pending:sub(count + 1)
  self.raw[#self.raw + 1] = bytes
  return bytes
end

local function add_body(self, text)
  self.pieces[#self.pieces + 1] = { text = text, at = loop.now() }
  self.body_bytes = self.body_bytes + #text
end

local step = {}

function step.head(self)
  local last = select(2, self.pending:find("\r\n\r\n", 1, true))
  if not last then return false end
  parse_head(self, take(self, last))
  if self.status and self.status < 200 then -- an interim answer: note it and go on
    self.interim = self.status
    self.headers, self.raw = nil, {}
    return true
  end
  self.head_at = loop.now()
  self.state = framing(self)
  self.framing = self.state
  return true
end

function step.none(self)
  self.done = true
  return false
end

function step.sized(self)
  if self.pending == "" then return false end
  local bytes = take(self, math.min(self.left, #self.pending))
  self.left = self.left - #bytes
  add_body(self, bytes)
  self.done = self.left == 0
  return not self.done
end

function step.close(self)
  if self.pending ~= "" then add_body(self, take(self, #self.pending)) end
  return false
end

function step.chunked(self)
  local last = select(2, self.pending:find("\r\n", 1, true))
  if not last then return false end
  local line = take(self, last)
  self.left = tonumber(line:match("^(%x+)") or error("no chunk size: " .. line), 16)
  self.state = self.left == 0 and "trailer" or "chunk"
  return true
end

function step.chunk(self)
  if self.left > 0 then
    if self.pending == "" then return false end
    local bytes = take(self, math.min(self.left, #self.pending))
    self.left = self.left - #bytes
    add_body(self, bytes)
    return true
  end
  if #self.pending < 2 then return false end
  assert(take(self, 2) == "\r\n", "no line end after a chunk")
  self.state = "chunked"
  return true
end

function step.trailer(self)
  local last = select(2, self.pending:find("\r\n", 1, true))
  if not last then return false end
  self.done = take(self, last) == "\r\n"
  return not self.done
end

---Takes bytes; what is behind the end of the message stays in `pending`.
function Message:feed(bytes)
  self.pending = self.pending .. bytes
  self.state = self.state or "head"
  while not self.done and step[self.state](self) do end
end

---The peer will send no more: the end of a body that has no other, or a broken message.
function Message:close()
  if self.state == "close" then self.done = true end
  return self.done
end

---The body so far, decoded.
function Message:json()
  return require("cjson").decode(self:body())
end

return M
