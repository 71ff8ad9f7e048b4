-- kvroute load as a process, and what it says.
--
--   local run = Driver.start(url, { "--users", "1", "-n", "10" })
--   local report, rows = run:finish()
--   after_each(Driver.finish)
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

local M = {}
local Driver = {}
Driver.__index = Driver

local running = {}

---@param arguments string[] behind the URL; --json and --rows are given
---@param options? table text: the table instead of JSON; env
function M.start(url, arguments, options)
  options = options or {}
  local self = setmetatable({ folder = Fleet.new_folder(), text = options.text }, Driver)
  running[self] = true
  self.rows_path = self.folder .. "/rows.jsonl"
  local argv = { Fleet.binary, "load", url, "--rows", self.rows_path }
  if not self.text then argv[#argv + 1] = "--json" end
  for _, argument in ipairs(arguments) do argv[#argv + 1] = argument end
  local env = { ASAN_OPTIONS = "detect_leaks=1", UBSAN_OPTIONS = "print_stacktrace=1" }
  for name, value in pairs(options.env or {}) do env[name] = value end
  self.process = process.start(argv,
    { out = self.folder .. "/out", err = self.folder .. "/err", env = env })
  return self
end

function Driver:alive()
  return self.process:alive()
end

---Waits for its end. Returns the report (decoded, or text), the rows and the exit status.
function Driver:finish(seconds)
  loop.wait(function() return not self:alive() end, seconds or 20, "the load to end")
  assert(self.process.ended == "exited",
    ("the load was %s by %d: %s"):format(self.process.ended, self.process.status,
      self.process:stderr()))
  local out = self.process:stdout()
  local report = out
  if not self.text and out ~= "" then report = cjson.decode(out) end
  local rows = {}
  if Fleet.exists(self.rows_path) then
    for line in io.lines(self.rows_path) do rows[#rows + 1] = cjson.decode(line) end
  end
  return report, rows, self.process.status
end

---The same at once.
function M.run(url, arguments, options)
  return M.start(url, arguments, options):finish(options and options.seconds)
end

---For after_each.
function M.finish()
  for self in pairs(running) do
    self.process:kill()
    if not os.getenv("KVR_KEEP") then Fleet.remove_folder(self.folder) end
    running[self] = nil
  end
end

return M
