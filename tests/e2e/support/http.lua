-- An HTTP/1.1 client that sends exactly what it is told, in the pieces it is told, and shows what
-- came back byte by byte. Answers are messages of message.lua.
local cjson = require("cjson")
local connection = require("e2e.support.connection")
local loop = require("e2e.support.loop")
local message = require("e2e.support.message")

local M = {}
local Client = {}
Client.__index = Client

---@param address string host:port
---@param receive_buffer? integer for a slow reader
function M.connect(address, receive_buffer)
  local self = setmetatable({ address = address, early = "" }, Client)
  self.connection = assert(connection.connect(address, receive_buffer))
  self.connection.on_bytes = function(bytes) self:take(bytes) end
  self.connection.on_end = function(how)
    if how == "fin" and self.reading and self.reading.headers then self.reading:close() end
  end
  return self
end

function Client:take(bytes)
  local answer = self.reading
  if not answer or answer.done then
    self.early = self.early .. bytes
    return
  end
  local ok, why = pcall(answer.feed, answer, bytes)
  if not ok then answer.error = why end
end

---The text of a request. `options`: method, path, headers (a list of "Name: value"), body (a
---string, or a table for JSON), chunks (a list of strings: a chunked body), host = false for none.
function M.text(options)
  local body = options.body
  if type(body) == "table" then body = cjson.encode(body) end
  local method = options.method or ((body or options.chunks) and "POST" or "GET")
  local lines = { ("%s %s HTTP/%s"):format(method, options.path or "/", options.version or "1.1") }
  if options.host ~= false then lines[#lines + 1] = "Host: " .. (options.host or "router.test") end
  if body or options.chunks then lines[#lines + 1] = "Content-Type: application/json" end
  for _, header in ipairs(options.headers or {}) do lines[#lines + 1] = header end
  if options.chunks then
    lines[#lines + 1] = "Transfer-Encoding: chunked"
    local text = { table.concat(lines, "\r\n") .. "\r\n\r\n" }
    for _, chunk in ipairs(options.chunks) do
      text[#text + 1] = ("%x\r\n%s\r\n"):format(#chunk, chunk)
    end
    text[#text + 1] = "0\r\n\r\n"
    return table.concat(text)
  end
  if body then lines[#lines + 1] = "Content-Length: " .. #body end
  return table.concat(lines, "\r\n") .. "\r\n\r\n" .. (body or "")
end

---Sends bytes as they are.
function Client:send(bytes)
  self.connection:send(bytes)
end

---Begins to read the next answer, and returns it: it fills while the loop goes on.
function Client:expect(method)
  local answer = message.new("response", method == "HEAD")
  local early = (self.reading and self.reading.pending or "") .. self.early
  self.reading, self.early = answer, ""
  if early ~= "" then self:take(early) end
  if self.connection.ended == "fin" and answer.headers then answer:close() end
  return answer
end

---Sends a request and returns its answer, which is still to come.
function Client:begin(options)
  self:send(M.text(options))
  return self:expect(options.method)
end

function Client:wait(condition, seconds, what)
  return loop.wait(function()
    if self.reading and self.reading.error then error(self.reading.error, 0) end
    return condition()
  end, seconds, what)
end

---Waits for the whole answer.
function Client:finish(seconds)
  local answer = self.reading
  self:wait(function() return answer.done or self.connection.ended end, seconds, "an answer")
  if not answer.done then
    error(("the connection ended (%s) after %d bytes of body, head %s"):format(
      self.connection.ended, answer.body_bytes, answer.start_line or "missing"), 2)
  end
  return answer
end

---A request and its whole answer.
function Client:request(options, seconds)
  self:begin(options)
  return self:finish(seconds)
end

---Waits until so many bytes of body are there.
function Client:wait_body(bytes, seconds)
  local answer = self.reading
  self:wait(function() return answer.body_bytes >= bytes end, seconds, bytes .. " bytes of body")
  return answer
end

---Waits for the router to end the connection; how it did: "fin" or "reset".
function Client:wait_end(seconds)
  loop.wait(function() return self.connection.ended end, seconds, "the end of the connection")
  return self.connection.ended
end

function Client:pause() self.connection:pause() end
function Client:resume() self.connection:resume() end
function Client:close() self.connection:close() end
function Client:reset() self.connection:reset() end
function Client:half_close() self.connection:half_close() end

---One request on a connection of its own.
function M.request(address, options, seconds)
  local client = M.connect(address)
  local answer = client:request(options, seconds)
  client:close()
  return answer
end

return M
