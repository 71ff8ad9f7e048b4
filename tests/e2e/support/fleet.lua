-- A router under test, with its replicas: `kvroute serve` as a process, scripted replicas (or the
-- addresses of others) behind it, a folder of its own for its configuration, scripts and rows.
--
--   local fleet = Fleet.start({ replicas = 2, config = { policy = "round_robin" } })
--   local answer = fleet:chat("Hello")
--   after_each(Fleet.finish)
--
-- Fleet.finish ends everything a test has opened, and checks what must hold at the end of every
-- test: nothing in flight, exit code 0 after SIGTERM, one row for each request that was received.
local cjson = require("cjson")
local posix_stat = require("posix.sys.stat")
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local unistd = require("posix.unistd")
local connection = require("e2e.support.connection")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local replica = require("e2e.support.replica")

local M = {}
local Fleet = {}
Fleet.__index = Fleet

local running = {}
local source = unistd.getcwd()

M.build = os.getenv("KVR_BUILD") or source .. "/build"
M.binary = M.build .. "/kvroute"

-- ---- files ----

local function quote(path)
  return "'" .. path:gsub("'", "'\\''") .. "'"
end

---A new folder for temporary files.
function M.new_folder()
  return assert(stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-e2e-XXXXXX"))
end

function M.remove_folder(path)
  os.execute("rm -rf " .. quote(path))
end

---Writes in place: the file keeps its identity.
function M.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  assert(file:close())
end

---Writes a new file and renames it over, as editors do.
function M.replace(path, text)
  M.write(path .. ".new", text)
  assert(os.rename(path .. ".new", path))
end

function M.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

-- ---- configuration ----

local function literal(value, indent)
  if type(value) ~= "table" then
    return type(value) == "string" and ("%q"):format(value) or tostring(value)
  end
  local parts = {}
  for _, item in ipairs(value) do parts[#parts + 1] = literal(item, indent .. "  ") end
  local keys = {}
  for key in pairs(value) do
    if type(key) == "string" then keys[#keys + 1] = key end
  end
  table.sort(keys)
  for _, key in ipairs(keys) do
    parts[#parts + 1] = key .. " = " .. literal(value[key], indent .. "  ")
  end
  return "{ " .. table.concat(parts, ", ") .. " }"
end

local function merge(into, from)
  for key, value in pairs(from or {}) do
    if type(value) == "table" and not value[1] and type(into[key]) == "table" then
      merge(into[key], value)
    else
      into[key] = value
    end
  end
  return into
end

local function settings(self, options)
  local replicas = {}
  for i, each in ipairs(self.replicas) do
    replicas[i] = merge({ url = each.url or each }, each.settings)
  end
  return merge({
    listen = "127.0.0.1:0",
    admin = { listen = "127.0.0.1:0" },
    replicas = replicas,
    policies_dir = self.policies,
    -- Quick where the defaults are for real fleets; a test that is about them sets them again.
    -- A probe that waits for a test that computes is no failure.
    health = { interval_ms = 100, timeout_ms = 10000, ramp_ms = 0 },
    timeouts = { drain_ms = 5000, client_parting_ms = 0 },
    rows = { path = self.folder .. "/rows.jsonl", flush_ms = 10 },
    limits = { replicas = 16 },
  }, options.config)
end

local function write_settings(self, options)
  local lines = {}
  local all = settings(self, options)
  local keys = {}
  for key in pairs(all) do keys[#keys + 1] = key end
  table.sort(keys)
  for _, key in ipairs(keys) do lines[#lines + 1] = key .. " = " .. literal(all[key], "") end
  M.write(self.folder .. "/kvroute.lua", table.concat(lines, "\n") .. "\n")
end

-- ---- start ----

local function start_replicas(options)
  local replicas = {}
  local wanted = options.replicas or 1
  if type(wanted) == "number" then
    for i = 1, wanted do replicas[i] = replica.start({ script = options.script }) end
    return replicas
  end
  for i, each in ipairs(wanted) do
    if type(each) == "string" then
      replicas[i] = { url = each, name = each:match("//(.*)") }
    else
      replicas[i] = replica.start(each)
      replicas[i].settings = each.settings
    end
  end
  return replicas
end

---Starts the router and waits until all its replicas are up and it knows what they serve.
---@param options? table
---  replicas: a number, or a list of options for replica.start, or of URLs;
---  descriptors, stack_kb: limits of the router's process;
---  script: for all replicas; config: settings over those of a test; policies: files beside copies
---  of the shipped ones, by name; ready = false: do not wait
function M.start(options)
  options = options or {}
  local self = setmetatable({ folder = M.new_folder() }, Fleet)
  running[self] = true
  self.replicas = start_replicas(options)
  self.policies = source .. "/policies"
  if options.policies then
    self.policies = self.folder .. "/policies"
    local copy = ("cp -r %s %s"):format(quote(source .. "/policies"), quote(self.policies))
    assert(os.execute(copy) == 0)
    for name, text in pairs(options.policies) do M.write(self:policy_path(name), text) end
  end
  write_settings(self, options)
  if options.descriptors then self.ulimits = ("ulimit -n %d; "):format(options.descriptors) end
  if options.stack_kb then self.ulimits = ("ulimit -s %d; "):format(options.stack_kb) end
  self:launch()
  if options.ready ~= false then self:wait_ready() end
  return self
end

---Replicas that look alike, asked in turn.
function M.alike(replicas, config, script)
  config = config or {}
  config.policy = config.policy or "round_robin"
  return M.start({ replicas = replicas, config = config, script = script })
end

function Fleet:launch()
  local argv = { M.binary, "serve", "--config", self.folder .. "/kvroute.lua" }
  if self.ulimits then
    argv = { "/bin/sh", "-c", self.ulimits .. 'exec "$@"', "sh", unpack(argv) }
  end
  self.router = process.start(argv, {
    out = self.folder .. "/out",
    err = self.folder .. "/err",
    env = { ASAN_OPTIONS = "detect_leaks=1", UBSAN_OPTIONS = "print_stacktrace=1" },
  })
  self.address, self.admin_address =
    self.router:wait_line("kvroute serving on (%S+).- admin (%S+)\n", 10)
  self.ended, self.terminated = nil, nil
end

---Waits until every replica is up and has told its models.
function Fleet:wait_ready(seconds)
  loop.wait(function()
    for _, each in ipairs(self:admin("/admin/replicas").replicas) do
      if each.operational ~= "up" or (each.models == cjson.null and not each.any_model) then
        return false
      end
    end
    return true
  end, seconds or 5, "all replicas to be up")
end

function Fleet:policy_path(name)
  return ("%s/%s.lua"):format(self.policies, name)
end

-- ---- asking ----

---A client of the router.
function Fleet:connect(receive_buffer)
  return http.connect(self.address, receive_buffer)
end

---One request on a connection of its own.
function Fleet:request(options, seconds)
  return http.request(self.address, options, seconds)
end

---The body of a chat request.
function M.chat(content, more)
  local body = { model = "test-model", messages = { { role = "user", content = content } } }
  for key, value in pairs(more or {}) do body[key] = value end
  return cjson.encode(body)
end

---A chat request's options; `headers` is a list of "Name: value".
function M.chat_request(content, more, headers)
  return { path = "/v1/chat/completions", body = M.chat(content, more), headers = headers }
end

---Sends a chat request on a connection of its own; the whole answer.
function Fleet:chat(content, more, headers)
  return self:request(M.chat_request(content, more, headers))
end

---A client whose chat request is under way; the answer to come is its `answer`.
function Fleet:begin_chat(content, headers)
  local client = self:connect()
  client.answer = client:begin(M.chat_request(content or "Hello", nil, headers))
  return client
end

---A stream of that replica whose first event has reached the client: both ends of it.
function Fleet:begin_stream(from)
  local client = self:connect()
  client:begin(M.chat_request("a long one", { stream = true }))
  local exchange = from:take()
  exchange:stream()
  exchange:event("first")
  client:wait_body(1)
  return client, exchange
end

---The admin interface: GET, or POST with a table. Its answer, decoded; an error unless it is 200.
function Fleet:admin(path, body)
  local answer = self:admin_answer(path, body)
  assert(answer.status == 200, ("%s: %d %s"):format(path, answer.status, answer:body()))
  return cjson.decode(answer:body())
end

function Fleet:admin_answer(path, body)
  return http.request(self.admin_address, { path = path, body = body })
end

function Fleet:metrics_page()
  return self:admin_answer("/metrics"):body()
end

---One value of that page; `sample` as it stands there, labels too. nil: there is none.
function Fleet:metric(sample)
  local page = "\n" .. self:metrics_page()
  local _, to = page:find("\n" .. sample .. " ", 1, true)
  return to and tonumber(page:match("^%S+", to + 1))
end

---How often a limit was hit.
function Fleet:hits(setting)
  return self:metric(('kvroute_limit_hits_total{limit="%s"}'):format(setting)) or 0
end

function Fleet:wait_waiting(count)
  loop.wait(function()
    return self:admin("/admin/status").requests.waiting == count
  end, 2, count .. " requests to wait")
end

---The script of that role, "policy" by default, as the admin interface sees it.
function Fleet:script(role)
  for _, each in ipairs(self:admin("/admin/scripts").scripts) do
    if each.role == (role or "policy") then return each end
  end
end

---The replica, as the admin interface sees it.
function Fleet:replica_state(name)
  for _, each in ipairs(self:admin("/admin/replicas").replicas) do
    if each.name == name then return each end
  end
end

function Fleet:is_down(name)
  return self:replica_state(name).operational == "down"
end

function Fleet:wait_down(name, seconds)
  loop.wait(function() return self:is_down(name) end, seconds, name .. " to be down")
end

---The scripted replica of that name (as in a row or in x-kvroute-replica).
function Fleet:replica(name)
  for _, each in ipairs(self.replicas) do
    if each.name == name then return each end
  end
  error("no replica " .. tostring(name))
end

-- ---- rows ----

local function read_rows(path)
  local rows = {}
  local file = io.open(path, "rb")
  if not file then return rows end
  local text = file:read("*a")
  file:close()
  for line in text:gmatch("([^\n]+)\n") do rows[#rows + 1] = cjson.decode(line) end
  return rows
end

---All rows so far, once there are at least `count`.
function Fleet:rows(count)
  local rows
  loop.wait(function()
    rows = read_rows(self.folder .. "/rows.jsonl")
    return #rows >= (count or 0)
  end, 3, ("%d rows"):format(count or 0))
  return rows
end

---The last row, which is the count-th.
function Fleet:row(count)
  local rows = self:rows(count)
  assert(#rows == count, ("%d rows instead of %d"):format(#rows, count))
  return rows[count]
end

-- ---- the end ----

---Waits until no request is open, and checks that nothing is counted in flight.
function Fleet:wait_idle(seconds)
  local status
  loop.wait(function()
    status = self:admin("/admin/status")
    return status.requests.open == 0 and status.exchanges.open == 0
  end, seconds or 2, "all requests to end")
  assert(status.replicas.in_flight == 0, "requests in flight and none open")
  for _, each in ipairs(self:admin("/admin/replicas").replicas) do
    assert(each.in_flight == 0, each.name .. " has requests in flight")
    assert(each.uncached_tokens == 0, each.name .. " has uncached tokens")
  end
  return status
end

---SIGTERM, once: a second one means hurry.
function Fleet:terminate()
  if self.terminated then return end
  self.terminated = true
  self.router:signal(signal.SIGTERM)
end

---SIGTERM, and a clean end. A test may call it; Fleet.finish does.
function Fleet:stop(seconds)
  if self.ended then return end
  self.ended = true
  self:terminate()
  local how, code = self.router:wait(seconds or 5)
  assert(how == "exited" and code == 0,
    ("the router %s with %s: %s"):format(how, tostring(code), self.router:stderr()))
end

-- Every request that came in has one row, whatever became of it.
local function check_rows(self, received)
  local rows = read_rows(self.folder .. "/rows.jsonl")
  assert(#rows == received, ("%d rows for %d requests"):format(#rows, received))
  local seen = {}
  for _, row in ipairs(rows) do
    assert(not seen[row.sequence], "two rows with one sequence number")
    seen[row.sequence] = true
  end
end

local function finish(self)
  if self.ended or not self.address then return end
  if not self.router:alive() then
    error(("the router %s (%s): %s"):format(self.router.ended, tostring(self.router.status),
      self.router:stderr()), 0)
  end
  local status = self:wait_idle()
  self:stop()
  if not self.rows_elsewhere then check_rows(self, status.requests.received) end
end

---For after_each: lets go of everything, then checks each router's end.
function M.finish()
  local problem
  connection.close_all()
  for self in pairs(running) do
    running[self] = nil
    local ok, why = pcall(finish, self)
    if not ok then problem = problem or why end
    self.router = self.router and self.router:kill()
    if not os.getenv("KVR_KEEP") then M.remove_folder(self.folder) end
  end
  replica.stop_all()
  connection.close_all()
  process.kill_all()
  if problem then error(problem, 0) end
end

---Does the file exist?
function M.exists(path)
  return posix_stat.stat(path) ~= nil
end

return M
