-- kvroute run: reads an experiment's file, runs its cells and shows what came out. stdout has the
-- result alone, and the same run gives the same bytes there; all else goes to stderr.
local blame = require("kvroute.blame")
local cell = require("kvroute.cell")
local experiment = require("kvroute.experiment")
local figure = require("kvroute.figure")
local json = require("kvroute.json")
local policy = require("kvroute.policy")
local report = require("kvroute.report")
local runner = require("kvroute.runner")
local settings = require("kvroute.settings")
local store = require("kvroute.store")
local watch = require("kvroute.watch")
local worker = require("kvroute.worker")

local M = {}

local OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

-- Failures with the same reason that are shown by name.
local NAMED = 5

---@class kvr.Options as the command line has them
---@field file string
---@field binary string path of this program
---@field policies string folder
---@field build kvr.Build
---@field set string[]
---@field jobs integer
---@field seed integer? of the first repetition, instead of the experiment's
---@field seeds integer? instead of the experiment's
---@field out string? folder of cells
---@field results string? folder for table, CSV and JSON
---@field shard string? "i/n"
---@field rows boolean
---@field fresh boolean
---@field list boolean
---@field contamination string? command that looks for what else uses the machine
---@field engines string? process numbers of engines, with commas between
---@field watch boolean run again whenever a file of it is saved

local function say(...)
  io.stderr:write(string.format(...), "\n")
end

local function parse_shard(text)
  if not text then return nil end
  local index, of = text:match("^(%d+)/(%d+)$")
  index, of = tonumber(index), tonumber(of)
  if not index or index < 1 or index > of then
    error(('--shard is I/N with I from 1 to N, not "%s"'):format(text), 0)
  end
  return { index = index, of = of }
end

---@return kvr.Experiment
---@return kvr.Cell[][] chains
local function read_experiment(options)
  for _, text in ipairs(options.set) do settings.give(text) end
  local found, line = blame.run(options.file)
  if not experiment.is(found) then
    error(("%s returns %s, not an experiment: it ends with return lab.experiment { ... }"):format(
      options.file, found == nil and "nothing" or "a " .. type(found)), 0)
  end
  settings.check()
  local ok, chains = pcall(found.chains, found, options.seed, options.seeds)
  if not ok then error(blame.at(chains, ("%s:%d"):format(options.file, line)), 0) end
  return found, chains
end

local function show_list(self, chains)
  for _, setting in ipairs(settings.list()) do
    local value = setting.default
    if type(value) == "table" then value = table.concat(value, ",") end
    print(("--set %s=%s"):format(setting.name, tostring(value)))
  end
  for _, chain in ipairs(chains) do
    for _, each in ipairs(chain) do
      local place = cell.place(each.at, self.axes)
      print(("%s  seed %d  %s%s"):format(each.key, each.seed, each.policy,
        place == "" and "" or ", " .. place))
    end
  end
end

-- Many cells may fail alike: each reason once, with the first that it befell.
local function show_failures(self, failures)
  local reasons, by_reason = {}, {}
  for _, failure in ipairs(failures) do
    if not by_reason[failure.reason] then
      by_reason[failure.reason] = {}
      reasons[#reasons + 1] = failure.reason
    end
    table.insert(by_reason[failure.reason], failure.cell)
  end
  for _, reason in ipairs(reasons) do
    local cells = by_reason[reason]
    for i = 1, math.min(#cells, NAMED) do
      local place = cell.place(cells[i].at, self.axes)
      say("failed: %s%s, seed %d", cells[i].policy, place == "" and "" or ", " .. place,
        cells[i].seed)
    end
    if #cells > NAMED then say("failed: %d more", #cells - NAMED) end
    say("  %s", (reason:gsub("\n", "\n  ")))
  end
end

local function write_results(self, found, options, text)
  local d = self.definition
  local path = options.results .. "/" .. self.name
  store.write_file(path .. ".txt", text)
  store.write_file(path .. ".json", json.encode(found:data(), true) .. "\n")
  store.write_file(path .. ".csv", found:csv())
  if d.figures then figure.write_all(path, blame.call(d.figures, found)) end
end

local function show(self, found, options)
  local d, parts = self.definition, {}
  parts[1] = d.question and ("%s: %s\n"):format(self.name, d.question) or nil
  parts[#parts + 1] = d.report and blame.call(d.report, found) or report.text(found,
    (d.show and (d.show.metrics or d.show.matrix)) and d.show
      or { metrics = { "goodput", "hit_rate", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms" } })
  local flagged = report.flagged(found)
  if #flagged > 0 then parts[#parts + 1] = table.concat(flagged, "\n") .. "\n" end
  parts[#parts + 1] = table.concat(report.notes(found), "\n") .. "\n"
  local text = table.concat(parts, "\n")
  io.write(text)
  io.flush()
  if options.results then write_results(self, found, options, text) end
end

local function jobs_of(chains, options)
  for _, chain in ipairs(chains) do
    -- What runs in real time shares the machine with nothing.
    if chain[1].spec.fleet.kind ~= "simulated" then return 1 end
  end
  return options.jobs
end

local function run(self, chains, options)
  local own = json.list({})
  for pid in (options.engines or ""):gmatch("%d+") do own[#own + 1] = tonumber(pid) end
  local folder = options.out or (options.file:match("^(.*)/[^/]*$") or ".") .. "/.cells"
  local ran = runner.run(chains, {
    store = store.open(folder), argv = { options.binary, "run", "--worker" },
    jobs = jobs_of(chains, options), shard = parse_shard(options.shard),
    rows = options.rows, fresh = options.fresh,
    limit_s = self.definition.limit_s, stop = self:stop(),
    contamination = { command = options.contamination, own = own },
  })
  local found = self:results(chains, ran.records)
  show_failures(self, ran.failures)
  if ran.interrupted then
    say("interrupted; %d cells were run and are kept: the same command goes on", ran.ran)
    return INTERRUPTED
  end
  if ran.missing > 0 then
    say("shard %s: %d cells run, %d are left to the others", options.shard, ran.ran, ran.missing)
  else
    -- Where all cells failed, a table would only push their reasons out of sight.
    if next(ran.records) then show(self, found, options) end
    local kept = -ran.ran
    for _ in pairs(ran.records) do kept = kept + 1 end
    say("%d cells run, %d failed%s; all are in %s", ran.ran, #ran.failures,
      kept > 0 and (", %d had been run before"):format(kept) or "", folder)
  end
  return #ran.failures > 0 and FAILED or OK
end

-- "file:line: what" of an error, without what the library adds above it.
local function explain(why)
  if type(why) ~= "string" then return why end
  return os.getenv("KVR_TRACEBACK") and debug.traceback(why, 2) or why
end

local function prepare(options)
  for _, name in ipairs({ "out", "results" }) do
    if options[name] == "" then error(("--%s is a folder, not nothing"):format(name), 0) end
  end
  parse_shard(options.shard)
  return read_experiment(options)
end

-- As pcall, and what is raised is told.
local function attempt(f, ...)
  local result = { xpcall(f, explain, ...) }
  if not result[1] then say("kvroute run: %s", tostring(result[2])) end
  return unpack(result)
end

local function run_once(options)
  settings.reset()
  watch.forget()
  watch.add(options.file)
  local prepared, self, chains = attempt(prepare, options)
  if not prepared then return USAGE end
  if options.list then
    show_list(self, chains)
    return OK
  end
  local ran, code = attempt(run, self, chains, options)
  return ran and code or FAILED
end

---@param options kvr.Options
---@return integer # exit code
function M.run(options)
  policy.folder, cell.build = options.policies, options.build
  local code = run_once(options)
  while options.watch and code ~= INTERRUPTED do
    say("watching %s", table.concat(watch.paths(), ", "))
    say("%s was saved", watch.wait())
    code = run_once(options)
  end
  return code
end

-- ---- a worker ----

local executors = {
  simulated = "kvroute.simulate", emulated = "kvroute.live", urls = "kvroute.live",
}

---Runs the cells that come on stdin, one a line.
---@return integer
function M.work()
  worker.serve(function(job, alive)
    return require(executors[job.spec.fleet.kind]).run(job, alive)
  end)
  return OK
end

return M
