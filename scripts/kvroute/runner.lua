-- Runs cells in parallel processes and keeps each result as it comes. A cell that is in the store
-- is not run again, so a run that was stopped goes on where it was.
--
-- Cells come in chains: within one they run in order, and the chain may stop early (a ladder of
-- loads). Cells that have nothing to do with each other are chains of one.
local poll = require("posix.poll")
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local json = require("kvroute.json")
local process = require("kvroute.process")
local progress = require("kvroute.progress")
local pulse = require("kvroute.pulse")

local M = {}

local SILENT_S = 30 -- of its own time: then a script of a cell never ends, most likely
local POLL_MS = 200

---@class kvr.RunOptions
---@field store kvr.Store
---@field argv string[] what runs a worker
---@field jobs integer
---@field shard? {index: integer, of: integer} only these chains; the others are collected
---@field rows? boolean rows are wanted too
---@field fresh? boolean run what is in the store again
---@field contamination? kvr.ContaminationOptions of cells in real time
---@field limit_s? number for one cell, heard of or not
---@field silent_s? number of a worker's own time (kvroute.pulse)
---@field stop? fun(record: table): boolean the rest of the chain need not run
---@field progress? fun(total: integer): kvr.Progress

---@class kvr.RunResult
---@field records table<string, table> by key of the cell
---@field failures {cell: kvr.Cell, reason: string}[]
---@field missing integer cells that were not to be run here and are not in the store
---@field ran integer
---@field interrupted boolean

local Run = {}
Run.__index = Run

-- ---- chains ----

local function stored(self, cell)
  if self.options.fresh and not self.fresh_done[cell.key] then return nil end
  if self.options.rows and not self.options.store:has_rows(cell.key) then return nil end
  return self.options.store:read(cell.key)
end

local function ends(self, chain, record)
  return chain.at == #chain.cells or (self.options.stop and self.options.stop(record)) or false
end

-- Takes what is known of a chain and moves on. Leaves it where a cell has to be run, waits for one
-- under way in another chain, or at its end.
local function advance(self, chain)
  while true do
    local cell = chain.cells[chain.at]
    local record = self.records[cell.key] or stored(self, cell)
    if not record then break end
    self.records[cell.key] = record
    if ends(self, chain, record) then return end
    chain.at = chain.at + 1
  end
  local key = chain.cells[chain.at].key
  if self.failed[key] then return end
  local waiting = self.under_way[key]
  if waiting then
    waiting[#waiting + 1] = chain
  elseif chain.ours then
    self.under_way[key] = {}
    self.ready[#self.ready + 1] = chain
  end
end

local function wake(self, key)
  local waiting = self.under_way[key]
  self.under_way[key] = nil
  for _, chain in ipairs(waiting) do advance(self, chain) end
end

-- ---- workers ----

local function start_worker(self)
  -- What it leaves behind, when it is killed, goes with the folder.
  local worker = { process = process.start(self.options.argv, nil, { TMPDIR = self.folder }) }
  worker.pulse = pulse.new(worker.process.pid)
  self.workers[worker.process.fd] = worker
  self.fds[worker.process.fd] = { events = { IN = true } }
  return worker
end

local function end_worker(self, worker, kill)
  local fd = worker.process.fd
  self.workers[fd], self.fds[fd] = nil, nil
  return worker.process:finish(kill)
end

local function idle_worker(self)
  local count = 0
  for _, worker in pairs(self.workers) do
    count = count + 1
    if not worker.chain then return worker end
  end
  return count < self.options.jobs and start_worker(self) or nil
end

local function job_of(self, cell)
  local job = {
    spec = cell.spec, texts = cell.texts, contamination = self.options.contamination,
  }
  if self.options.rows then
    self.options.store:prepare(cell.key)
    job.rows = self.options.store:path(cell.key, "rows.jsonl")
  end
  return json.encode(job)
end

local function fail(self, chain, reason)
  local cell = chain.cells[chain.at]
  self.failures[#self.failures + 1] = { cell = cell, reason = reason }
  self.failed[cell.key] = true
  self.progress.total = self.progress.total - (#chain.cells - chain.at)
  self.progress:add(false)
  wake(self, cell.key)
end

local ENDED = "its process "

local function give_up(self, worker, why)
  local chain, how = worker.chain, end_worker(self, worker, true)
  if chain then fail(self, chain, why == ENDED and ENDED .. how or why) end
end

local function hand_out(self)
  while #self.ready > 0 do
    local worker = idle_worker(self)
    if not worker then return end
    local chain = table.remove(self.ready, 1)
    worker.chain, worker.began = chain, progress.now()
    worker.pulse:heard(worker.began)
    if not worker.process:send(job_of(self, chain.cells[chain.at])) then
      give_up(self, worker, ENDED)
    end
  end
end

local function finished(self, worker, answer)
  local chain, store = worker.chain, self.options.store
  local cell = chain.cells[chain.at]
  worker.chain = nil
  if answer.failure then return fail(self, chain, answer.failure) end
  local record = { key = cell.key, cell = cell.spec, result = answer.result }
  for hash, text in pairs(cell.texts) do store:keep_script(hash, text) end
  store:write(record)
  -- As it will be read: what a later run shows must not differ in a digit.
  self.records[cell.key] = json.decode(json.encode(record))
  self.fresh_done[cell.key] = true
  self.ran = self.ran + 1
  self.progress:add(true)
  if not ends(self, chain, self.records[cell.key]) then
    chain.at = chain.at + 1
    advance(self, chain)
  else
    self.progress.total = self.progress.total - (#chain.cells - chain.at)
  end
  wake(self, cell.key)
end

-- Lines of a worker: signs of life, and at last an answer. Returns how it went wrong, if it did.
local function hear(self, worker)
  local line, ended = worker.process:receive()
  while line do
    local answer = json.decode(line)
    worker.pulse:heard(progress.now())
    if not answer.alive then finished(self, worker, answer) end
    line = worker.process:buffered()
  end
  return ended and ENDED
end

local function hopeless(self, worker, now)
  local limit, silent = self.options.limit_s, self.options.silent_s or SILENT_S
  if not worker.chain then return nil end
  if worker.pulse:silent(now) > silent then
    return ("nothing was heard of it for %g s of its time; does a script never end?")
      :format(silent)
  elseif limit and now - worker.began > limit then
    return ("it took longer than %g s"):format(limit)
  end
end

local function listen(self)
  local ready = poll.poll(self.fds, POLL_MS) or 0 -- nil: a signal
  local now = progress.now()
  for fd, events in pairs(self.fds) do
    -- What poll says of a descriptor stays there when it finds nothing the next time.
    local worker, revents = self.workers[fd], ready > 0 and events.revents
    local readable = revents and (revents.IN or revents.HUP or revents.ERR)
    local why = readable and hear(self, worker) or hopeless(self, worker, now)
    if why then
      give_up(self, worker, why)
      return -- the table of descriptors has changed under the loop
    end
  end
  self.progress:tick()
end

local function busy(self)
  for _, worker in pairs(self.workers) do
    if worker.chain then return true end
  end
  return #self.ready > 0
end

local function loop(self)
  while busy(self) and not self.interrupted do
    hand_out(self)
    if busy(self) then listen(self) end
  end
end

local function guarded(self)
  self.folder = assert(stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-run-XXXXXX"))
  local before = signal.signal(signal.SIGINT, function() self.interrupted = true end)
  local before_term = signal.signal(signal.SIGTERM, function() self.interrupted = true end)
  local pipe = signal.signal(signal.SIGPIPE, signal.SIG_IGN)
  local ok, why = pcall(loop, self)
  for _, worker in pairs(self.workers) do
    local how = worker.process:finish(worker.chain ~= nil)
    if not worker.chain and not how:find("^exited with 0%f[%D]") then
      io.stderr:write("a process that had run its cells ", how, "\n")
    end
  end
  os.execute(("rm -rf '%s'"):format(self.folder:gsub("'", "'\\''")))
  signal.signal(signal.SIGINT, before)
  signal.signal(signal.SIGTERM, before_term)
  signal.signal(signal.SIGPIPE, pipe)
  self.progress:finish()
  if not ok then error(why, 0) end
end

-- ---- a run ----

-- Cells that have no result and no failure either: other shards have them, or nobody yet.
local function missing(self, chains)
  local count = 0
  for _, cells in ipairs(chains) do
    for i, cell in ipairs(cells) do
      local record = self.records[cell.key] or stored(self, cell)
      self.records[cell.key] = record
      if not record then
        count = count + (self.failed[cell.key] and 0 or #cells - i + 1)
        break
      elseif ends(self, { cells = cells, at = i }, record) then
        break
      end
    end
  end
  return count
end

---@param chains kvr.Cell[][]
---@param options kvr.RunOptions
---@return kvr.RunResult
function M.run(chains, options)
  local self = setmetatable({
    options = options, records = {}, failures = {}, failed = {}, ran = 0,
    interrupted = false, ready = {}, under_way = {}, workers = {}, fds = {}, fresh_done = {},
  }, Run)
  local total = 0
  for i, cells in ipairs(chains) do
    local shard = options.shard
    local ours = not shard or (i - 1) % shard.of == shard.index - 1
    local chain = { cells = cells, at = 1, ours = ours }
    local ready = #self.ready
    advance(self, chain)
    if #self.ready > ready then total = total + #cells - chain.at + 1 end
  end
  self.progress = (options.progress or progress.new)(total)
  guarded(self)
  return {
    missing = missing(self, chains), records = self.records, failures = self.failures,
    ran = self.ran, interrupted = self.interrupted,
  }
end

return M
