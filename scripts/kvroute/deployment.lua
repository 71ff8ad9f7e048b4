-- A router before its engines as processes of their own on the loopback, for one cell: `kvroute
-- fleet` where the engines are emulated, and `kvroute serve` with the cell's scripts and settings.
-- Their caches are empty at the start. Times of the router are simulated ones: at a time scale of
-- 20, what is 57 s to the engines is 2.85 s to the router.
local http = require("socket.http")
local stdlib = require("posix.stdlib")
local time = require("posix.time")
local unistd = require("posix.unistd")
local json = require("kvroute.json")
local process = require("kvroute.process")
local store = require("kvroute.store")

local M = {}

local START_S = 15
local STOP_S = 5

---@class kvr.Deployment
---@field url string where requests go
---@field folder string holds all files
---@field rows string? file of the router's rows
---@field scale number engine seconds a second
local Deployment = {}
Deployment.__index = Deployment

local function fail(...) error({ reason = (...):format(select(2, ...)) }) end

local function give_up(self, which)
  local how = self[which]:finish(true)
  self[which] = nil
  return how
end

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

-- ---- engines ----

local function profile_path(self, fleet)
  if not fleet.profile_text then return fleet.profile end
  store.write_file(self.folder .. "/profile.lua", fleet.profile_text)
  return self.folder .. "/profile.lua"
end

-- Answers that stop by themselves: as many as the simulator's, though not the same ones.
local function early_share(workload)
  return workload.early_share or (workload.kind == "trace" and 0 or 0.2)
end

local function start_engines(self, spec)
  local fleet = spec.fleet
  local argv = {
    self.binary, "fleet", "--profile", profile_path(self, fleet),
    "--port", tostring(fleet.port or 0), "--time-scale", tostring(self.scale),
    "--seed", tostring(spec.seed), "--control", "127.0.0.1:0",
    "--prompt-tokens-details", "zero", "--early-stops", tostring(early_share(spec.workload)),
  }
  if fleet.replicas then
    argv[#argv + 1], argv[#argv + 2] = "--replicas", tostring(fleet.replicas)
  end
  self.engines = process.start(argv, 1)
  local urls = json.list({})
  while true do
    local what, address = self.engines:wait_line("^(%a+).-(%S*)$", START_S)
    if not what then fail("the engines %s", give_up(self, "engines")) end
    if what == "ready" then return urls end
    if what == "control" then self.control = "http://" .. address end
    if what == "replica" then urls[#urls + 1] = "http://" .. address end
  end
end

local function reset_engines(fleet)
  if fleet.reset and os.execute(fleet.reset) ~= 0 then
    fail("the command that resets the engines failed: %s", fleet.reset)
  end
end

-- ---- the router ----

-- Settings of a cell's router by their names in a configuration. Times are the engines'.
local names = {
  index_nodes = "index.nodes", index_nodes_per_replica = "index.nodes_per_replica",
  index_memory_mb = "index.memory_mb", index_block_bytes = "index.block_bytes",
  index_wide_after = "index.wide_after", ring_vnodes = "ring.vnodes", moves = "moves",
  requests_max = "limits.requests", queue_max = "queue.max",
}
local times = {
  index_ttl_ms = "index.ttl_ms", queue_deadline_ms = "queue.deadline_ms",
  health_interval_ms = "health.interval_ms", health_ramp_ms = "health.ramp_ms",
}

local function settings_of(self, spec)
  local out = {
    ["listen"] = "127.0.0.1:0", ["admin.listen"] = "127.0.0.1:0", ["seed"] = spec.seed,
    ["policies_dir"] = self.folder .. "/policies", ["policy"] = spec.policy.name,
    ["rows.path"] = self.folder .. "/router.jsonl", ["rows.flush_ms"] = 20, ["rows.keep"] = 1,
    ["rows.max_bytes"] = 1e12, ["log_level"] = "warn",
    ["scrape.interval_ms"] = math.max(1, 1000 / self.scale),
  }
  for name, value in pairs(spec.router) do
    if names[name] then
      out[names[name]] = value
    elseif times[name] then
      out[times[name]] = value < 0 and 1e12 or math.max(1, value / self.scale)
    elseif name == "index_replies" then
      out["index.replies"] = value == 1 or value == true
    elseif name == "queue_shortest" then
      out["queue.order"] = (value == 1 or value == true) and "shortest" or "fifo"
    elseif name ~= "capacity" then
      fail("router: %s cannot be set on a live router", name)
    end
  end
  return out
end

local function literal(value)
  return type(value) == "string" and ("%q"):format(value) or tostring(value)
end

local function params_text(name, params)
  local parts = {}
  for key, value in pairs(params) do
    parts[#parts + 1] = ("[%q] = %s"):format(key, literal(value))
  end
  table.sort(parts)
  return ("%s = { %s }"):format(name, table.concat(parts, ", "))
end

local function config_of(spec, urls)
  local lines = {}
  for i, url in ipairs(urls) do
    local capacity = spec.router.capacity
    lines[i] = ("  { url = %q%s },"):format(url, capacity and ", capacity = " .. capacity or "")
  end
  table.insert(lines, 1, "replicas = {")
  lines[#lines + 1] = "}"
  lines[#lines + 1] = params_text("params", spec.policy.params)
  if type(spec.spill) == "table" then
    lines[#lines + 1] = ("spill = %q"):format(spec.spill.name)
    lines[#lines + 1] = params_text("spill_params", spec.spill.params)
  end
  return table.concat(lines, "\n") .. "\n"
end

local function write_scripts(self, job)
  for role, folder in pairs({ policy = "/policies/", spill = "/policies/spill/" }) do
    local script = job.spec[role]
    if type(script) == "table" then
      store.write_file(self.folder .. folder .. script.name .. ".lua", job.texts[script.hash])
    end
  end
end

-- Until it has replicas in rotation and knows what they serve.
local function await_router(self)
  for _ = 1, START_S * 50 do
    local _, ready = http.request(self.url .. "/readyz")
    local models = http.request(self.url .. "/v1/models") or ""
    if ready == 200 and models:find('"id"', 1, true) then return end
    time.nanosleep({ tv_sec = 0, tv_nsec = 20e6 })
  end
  fail("no engine answers the router after %d s", START_S)
end

local function start_router(self, job, urls)
  write_scripts(self, job)
  store.write_file(self.folder .. "/kvroute.lua", config_of(job.spec, urls))
  local argv = { self.binary, "serve", "--config", self.folder .. "/kvroute.lua" }
  for name, value in pairs(settings_of(self, job.spec)) do
    local text = type(value) == "number" and ("%.15g"):format(value) or tostring(value)
    argv[#argv + 1], argv[#argv + 2] = "--set", ("%s=%s"):format(name, text)
  end
  self.router = process.start(argv, 1)
  local address, admin = self.router:wait_line("^kvroute serving on (%S+) .*admin (%S+)", START_S)
  if not address then fail("the router %s", give_up(self, "router")) end
  self.url, self.admin = "http://" .. address, "http://" .. admin
  self.rows = self.folder .. "/router.jsonl"
  await_router(self)
end

-- ---- both ----

---@return string # path of this program
function M.binary()
  return assert(unistd.readlink("/proc/self/exe"))
end

---Starts what a cell needs. What cannot be started is raised with its reason.
---@param job {spec: table, texts: table<string, string>}
---@param alive (fun())? to be called at least every few seconds
---@return kvr.Deployment
function M.start(job, alive)
  local fleet = job.spec.fleet
  local self = setmetatable({
    binary = M.binary(), scale = fleet.time_scale or 1,
    folder = assert(stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-cell-XXXXXX")),
  }, Deployment)
  local ok, why = pcall(function()
    local urls = fleet.urls or start_engines(self, job.spec)
    if alive then alive() end
    reset_engines(fleet)
    if alive then alive() end
    start_router(self, job, urls)
  end)
  if ok then return self end
  self:stop()
  error(why, 0)
end

---What the router has thought of its replicas since the start.
---@return integer ejections
---@return string[] out_of_rotation names of those that are now
function Deployment:health()
  local ejections, gone = 0, json.list({})
  local body = http.request(self.admin .. "/admin/replicas")
  if not body then fail("the router's admin page does not answer") end
  for _, replica in ipairs(json.decode(body).replicas) do
    ejections = ejections + replica.ejections
    if not replica.in_rotation then gone[#gone + 1] = replica.name end
  end
  return ejections, gone
end

---How late the steps of emulated engines were, p99 of the worst, in their own time.
---@return number? # nil: these engines do not tell
function Deployment:engines_late_ms()
  if not self.control then return nil end
  local late_us = 0
  local body = http.request(self.control .. "/replicas?replica=all")
  if not body then fail("the engines do not answer") end
  for _, each in ipairs(json.decode(body)) do late_us = math.max(late_us, each.late_p99_us) end
  return late_us / 1000 * self.scale
end

---Calls of the policy and the spill rule that failed.
---@return integer
function Deployment:script_failures()
  local failed = 0
  local body = http.request(self.admin .. "/admin/scripts")
  if not body then fail("the router's admin page does not answer") end
  for _, script in ipairs(json.decode(body).scripts) do
    failed = failed + script.since_chosen.failed
  end
  return failed
end

---Ends the router in order, so that its rows are whole.
---@return string? # how it failed, if it did
function Deployment:stop_router()
  if not self.router then return nil end
  local how = self.router:ask_to_end(STOP_S)
  self.router = nil
  if how ~= "exited with 0" then return "the router " .. how end
end

---Ends all of it, and the folder with it.
function Deployment:stop()
  self:stop_router()
  if self.engines then self.engines:ask_to_end(STOP_S) end
  self.engines = nil
  os.execute("rm -rf " .. quoted(self.folder))
end

return M
