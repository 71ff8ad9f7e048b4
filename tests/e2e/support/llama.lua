-- A real engine: llama.cpp with a tiny random model behind an OpenAI server (llama/server.js), a
-- process of its own on a free port.
--
--   local engine = Llama.start({ slots = 2 })   or two of them: Llama.start_all(2)
--   engine.url, engine.name                   http://host:port, host:port
--   engine:log()                              what has reached it, decoded, oldest first
--   engine:kill()                             SIGKILL: no word to anybody
--   after_each(Llama.finish)
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

local M = {}
local Llama = {}
Llama.__index = Llama

M.model = "test-model" -- what Fleet.chat asks for

local folder = "tests/e2e/llama"
local running = {}

local function said(command)
  local pipe = assert(io.popen(command .. " 2>/dev/null"))
  local text = pipe:read("*a")
  pipe:close()
  return text
end

---Why it cannot run here; nil when it can.
function M.missing()
  if not Fleet.exists(folder .. "/node_modules/node-llama-cpp") then
    return "the engine is not installed (scripts/test e2e does)"
  end
  local version = said("node --version")
  if (tonumber(version:match("^v(%d+)")) or 0) < 20 then return "the engine needs Node 20" end
  if said("uname -m") ~= "x86_64\n" then return "the engine is built for x86-64" end
end

local function begin(options)
  local self = setmetatable({ folder = Fleet.new_folder() }, Llama)
  running[self] = true
  local model = self.folder .. "/model.gguf"
  assert(os.execute(("node %s/model.js '%s'"):format(folder, model)) == 0, "no model was made")
  local argv = { "node", folder .. "/server.js", model, "name=" .. M.model }
  for name, value in pairs(options or {}) do argv[#argv + 1] = name .. "=" .. value end
  self.process = process.start(argv, { out = self.folder .. "/out", err = self.folder .. "/err" })
  return self
end

---Begins to start `count` engines, and waits for all of them.
---@param options? table settings of server.js, such as slots and context (tokens of a slot)
---@return table engines
function M.start_all(count, options)
  local engines = {}
  for i = 1, count do engines[i] = begin(options) end
  for _, engine in ipairs(engines) do
    engine.name = engine.process:wait_line("listening on (%S+)\n", 30)
    engine.url = "http://" .. engine.name
  end
  return engines
end

---One of them.
function M.start(options)
  return M.start_all(1, options)[1]
end

---@return table entries as server.js writes them
function Llama:log()
  local entries = {}
  for line in http.request(self.name, { path = "/log" }):body():gmatch("([^\n]+)\n") do
    entries[#entries + 1] = cjson.decode(line)
  end
  return entries
end

---Waits until its last request has that outcome, and returns the entry.
function Llama:wait_outcome(outcome, seconds)
  return loop.wait(function()
    local log = self:log()
    local last = log[#log]
    return last and last.outcome == outcome and last
  end, seconds or 10, "an engine's request to be at: " .. outcome)
end

---One value of its metrics page.
function Llama:metric(name)
  local page = http.request(self.name, { path = "/metrics" }):body()
  return tonumber(page:match("\nvllm:" .. name .. "{[^\n]*} (%S+)"))
end

function Llama:kill()
  self.process:kill()
end

---For after_each. An engine has said nothing on stderr.
function M.finish()
  local problem
  for self in pairs(running) do
    running[self] = nil
    self:kill()
    local text = self.process:stderr()
    if text ~= "" then problem = problem or "the engine said: " .. text end
    if not os.getenv("KVR_KEEP") then Fleet.remove_folder(self.folder) end
  end
  if problem then error(problem, 0) end
end

return M
