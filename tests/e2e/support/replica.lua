-- A replica that does what the test says. It answers /health, /v1/models and /metrics by itself;
-- every other request becomes an exchange that the test, or `script`, answers byte by byte:
--
--   local replica = Replica.start()
--   local exchange = replica:take()          -- waits for the next request
--   exchange:send("HTTP/1.1 200 OK\r\n...")  -- or :reply, :stream + :event + :finish
--   exchange:reset()                         -- or :close, :half_close
--   exchange:wait_gone(0.1)                  -- the router has closed its side
local cjson = require("cjson")
local unistd = require("posix.unistd")
local connection = require("e2e.support.connection")
local loop = require("e2e.support.loop")
local message = require("e2e.support.message")

local M = {}
local Replica = {}
Replica.__index = Replica
local Exchange = {}
Exchange.__index = Exchange

local running = {}

-- A chat completion, as engines answer it.
M.completion = {
  id = "chatcmpl-1",
  object = "chat.completion",
  created = 1700000000,
  model = "test-model",
  choices = {
    { index = 0, message = { role = "assistant", content = "Fine." }, finish_reason = "stop" },
  },
  usage = { prompt_tokens = 12, completion_tokens = 2, total_tokens = 14 },
}

-- ---- one request ----

---Bytes as they are.
function Exchange:send(bytes)
  self.connection:send(bytes)
end

---A whole answer with a length.
---@param options? table status, headers (list of "Name: value"), body (string, or table for JSON)
function Exchange:reply(options)
  options = options or {}
  local body = options.body or M.completion
  if type(body) == "table" then body = cjson.encode(body) end
  local lines = { ("HTTP/1.1 %d %s"):format(options.status or 200, options.phrase or "OK") }
  lines[#lines + 1] = "Content-Type: " .. (options.content_type or "application/json")
  for _, header in ipairs(options.headers or {}) do lines[#lines + 1] = header end
  lines[#lines + 1] = "Content-Length: " .. #body
  self:send(table.concat(lines, "\r\n") .. "\r\n\r\n" .. body)
  self.finished = true
end

---The head of a chunked event stream.
function Exchange:stream(headers)
  local lines = { "HTTP/1.1 200 OK", "Content-Type: text/event-stream; charset=utf-8" }
  for _, header in ipairs(headers or {}) do lines[#lines + 1] = header end
  lines[#lines + 1] = "Transfer-Encoding: chunked"
  self:send(table.concat(lines, "\r\n") .. "\r\n\r\n")
end

---One chunk.
function Exchange:chunk(bytes)
  self:send(("%x\r\n%s\r\n"):format(#bytes, bytes))
end

---One event with this content, in a chunk of its own. Returns the event's bytes.
function Exchange:event(content)
  local event = "data: " .. cjson.encode({
    object = "chat.completion.chunk",
    choices = { { index = 0, delta = { content = content } } },
  }) .. "\n\n"
  self:chunk(event)
  return event
end

function Exchange:finish()
  self:chunk("data: [DONE]\n\n")
  self:send("0\r\n\r\n")
  self.finished = true
end

function Exchange:reset() self.connection:reset() end
function Exchange:close() self.connection:close() end
function Exchange:half_close() self.connection:half_close() end

---Has the router ended the connection?
function Exchange:gone()
  return self.connection.ended
end

---Waits for that. Returns how long ago it happened, in seconds, after `since` if given.
function Exchange:wait_gone(seconds, since)
  loop.wait(function() return self.connection.ended end, seconds, "the router to let go")
  return since and self.connection.ended_at - since or 0
end

-- ---- the server ----

local function page(self, exchange)
  local path = exchange.request.target:match("^[^?]*")
  self.asked[path] = (self.asked[path] or 0) + 1
  self.asked_by[path] = exchange.request
  if path == "/health" then
    exchange:reply({ status = self.healthy and 200 or 503, phrase = "Health", body = "" })
  elseif path == "/v1/models" then
    local data = {}
    for i, model in ipairs(self.models) do
      data[i] = { id = model, object = "model", created = 1700000000, owned_by = "test" }
    end
    exchange:reply({ body = { object = "list", data = data } })
  elseif path == "/metrics" then
    exchange:reply({ status = self.metrics and 200 or 500, content_type = "text/plain",
      body = self.metrics or "" })
  else
    return false
  end
  return true
end

local begin

local function on_request(self, conn, request)
  local exchange = setmetatable({
    replica = self,
    connection = conn,
    request = request,
    body = request:body(),
    bytes = request:bytes(),
    at = loop.now(),
    nth = conn.requests, -- on its connection
  }, Exchange)
  if not (request.method == "GET" and page(self, exchange)) then
    self.exchanges[#self.exchanges + 1] = exchange
    conn.used = true
    if self.script then self.script(exchange) end
  end
  if conn.fd then begin(self, conn, request.pending) end
end

function begin(self, conn, early)
  local request = message.new("request")
  conn.requests = (conn.requests or 0) + 1
  conn.on_bytes = function(bytes)
    local ok, why = pcall(request.feed, request, bytes)
    if not ok then
      self.broken = why
      conn:close()
    elseif request.done then
      conn.on_bytes = nil
      on_request(self, conn, request)
    elseif request.headers and self.on_head and not conn.early then
      conn.early = true
      self.on_head(conn, request)
    end
  end
  if early ~= "" then conn.on_bytes(early) end
end

local function on_connection(self)
  local conn = connection.accept(self.listening)
  if not conn then return end
  self.accepted = self.accepted + 1
  self.connections[#self.connections + 1] = conn
  conn.on_end = function(how)
    -- A replica that is done closes too; one that still owes an answer keeps its end open, so that
    -- the test can look at it.
    if how == "reset" then conn:close() elseif not conn.used then conn:close() end
  end
  begin(self, conn, "")
end

---@class Replica options: models, script (called with each exchange), metrics
function M.start(options)
  options = options or {}
  local self = setmetatable({
    models = options.models or { "test-model" },
    script = options.script,
    metrics = options.metrics or "# TYPE vllm:num_requests_running gauge\n"
      .. 'vllm:num_requests_running{model_name="m",engine="0"} 0\n',
    healthy = true,
    exchanges = {},   -- all so far
    taken = 0,
    asked = {},       -- how often its pages were, by path
    asked_by = {},    -- the last request for them
    accepted = 0,     -- connections
    connections = {},
    broken = nil,     -- why a request could not be parsed
    on_head = nil,    -- called with connection and head of a request whose body is still coming
  }, Replica)
  self.port = options.port or 0
  self:listen()
  self.name = "127.0.0.1:" .. self.port
  self.url = "http://" .. self.name
  running[self] = true
  return self
end

function Replica:listen()
  self.listening, self.port = connection.listen(self.port)
  loop.watch(self.listening, function() on_connection(self) end)
end

---Connections are refused from now on; those that are there stay.
function Replica:refuse()
  if not self.listening then return end
  loop.forget(self.listening)
  unistd.close(self.listening)
  self.listening = nil
end

---Closes all its connections.
function Replica:hang_up()
  for _, conn in ipairs(self.connections) do conn:close() end
end

---Accepts no connection any more, and fills the queue of those that wait, so that connecting takes
---for ever.
function Replica:clog()
  loop.forget(self.listening)
  for _ = 1, 2 * connection.BACKLOG do
    self.connections[#self.connections + 1] = connection.begin(self.name)
  end
end

---Waits for the next request that no test has taken yet.
function Replica:take(seconds)
  loop.wait(function()
    assert(not self.broken, self.broken)
    return self.exchanges[self.taken + 1]
  end, seconds, "a request at " .. self.name)
  self.taken = self.taken + 1
  return self.exchanges[self.taken]
end

---Waits for the next request at any of them.
function M.take_any(replicas, seconds)
  local found
  loop.wait(function()
    for _, each in ipairs(replicas) do
      if each.exchanges[each.taken + 1] then found = each end
    end
    return found
  end, seconds, "a request at any replica")
  return found:take()
end

---Requests so far at all of them.
function M.count_all(replicas)
  local count = 0
  for _, each in ipairs(replicas) do count = count + each:count() end
  return count
end

---Requests so far, its own pages not counted.
function Replica:count()
  return #self.exchanges
end

function Replica:stop()
  self:refuse()
  for _, conn in ipairs(self.connections) do conn:close() end
  running[self] = nil
end

---For the end of a test.
function M.stop_all()
  for self in pairs(running) do self:stop() end
end

-- ---- scripts ----

---Answers everything at once.
function M.answers(options)
  return function(exchange) exchange:reply(options) end
end

return M
