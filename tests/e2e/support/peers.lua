-- What the specs of the numbered cases (peer_cases_*_spec.lua) share: a router before emulated
-- replicas that are processes of their own, the two sides' ends, and the metrics page.
local cjson = require("cjson")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")

local M = {}

-- The full sizes of the long cases, for a run by hand: KVR_FULL=1 busted --run=e2e FILE.
M.full = os.getenv("KVR_FULL") == "1"

---The size of a long case.
function M.size(reduced, full)
  return M.full and full or reduced
end

-- A sanitizer's allocator keeps what is freed, so that its use is found.
local sanitized = Fleet.read(Fleet.binary):find("__asan_init", 1, true) ~= nil

---By how much the router's resident memory has grown; a sanitizer's does not tell: 0.
---@param since integer bytes then
function M.grown(fleet, since)
  return sanitized and 0 or fleet.router:rss() - since
end

---Emulated replicas that serve Fleet.chat's model.
---@param replicas integer
---@param ... string further arguments of `kvroute fleet`
function M.emulator(replicas, ...)
  return Emulator.start({
    replicas = replicas, args = { "--served-model-name", "test-model", ... },
  })
end

---A router before them.
---@param emulators table one, or a list of them
---@param config? table settings
---@param more? table further options of Fleet.start
function M.start(emulators, config, more)
  local urls = {}
  for _, emulator in ipairs(emulators.urls and { emulators } or emulators) do
    for _, url in ipairs(emulator.urls) do urls[#urls + 1] = url end
  end
  local options = { replicas = urls, config = config }
  for key, value in pairs(more or {}) do options[key] = value end
  return Fleet.start(options)
end

---For after_each: both sides' ends, each with its checks. The router's comes last: it sees its
---replicas go.
function M.finish()
  local ok, why = pcall(Emulator.finish)
  Fleet.finish()
  if not ok then error(why, 0) end
end

---One value of the metrics page; nil when there is no such sample. `sample` is as it stands there.
function M.metric(fleet, sample)
  local page = http.request(fleet.admin_address, { path = "/metrics" }):body()
  local _, to = ("\n" .. page):find("\n" .. sample .. " ", 1, true)
  return to and tonumber(page:match("^[^\n]+", to))
end

---A command to the admin interface, by its path below /admin/; its answer, decoded, must be 200.
function M.command(fleet, path, body)
  return fleet:admin("/admin/" .. path, cjson.encode(body or {}))
end

---How many requests each replica has taken, by the rows from the given one on: name -> count.
function M.spread(rows, from)
  local counts = {}
  for i = from or 1, #rows do
    local name = rows[i].replica
    if name then counts[name] = (counts[name] or 0) + 1 end
  end
  return counts
end

return M
