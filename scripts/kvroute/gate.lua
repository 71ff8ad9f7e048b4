-- The shadow-replay gate of CacheRoute (section 5.3 of the paper): before a policy acts, recorded
-- traffic is replayed in the simulator through it and through what is in force, at one load below
-- and one near the knee of the latter. Nothing of the requests' content is needed.
--
--   rows  |------ warm-up: caches fill, rates of keys, the plan ------|---- judged ----|
--
-- A repetition keeps the requests in their order, and draws their gaps anew, in blocks of
-- successive ones (moving-block bootstrap), stretched to the load; the seed is the same for both.
-- The knee is the highest load at which most repetitions of the baseline are within the limits,
-- found to a tenth. The baseline may be the best of the policies that need no plan: of all of
-- them, those fall out that are not within the limits at a load that another one holds.
local experiment = require("kvroute.experiment")
local ffi = require("kvroute.ffi")
local fleet = require("kvroute.fleet")
local import = require("kvroute.import")
local json = require("kvroute.json")
local lfs = require("lfs")
local policy = require("kvroute.policy")
local runner = require("kvroute.runner")
local stats = require("kvroute.stats")
local store = require("kvroute.store")
local verdict = require("kvroute.gate_verdict")
local workload = require("kvroute.workload")

local M = {}

local STEP = 1.5       -- between loads while the knee is sought
local CLOSE = 1.1      -- and between the last that passes and the first that fails
local STEPS_MAX = 16
local BELOW = 0.6      -- of the knee
local REQUESTS_MIN = 100 -- judged: a p99 of fewer says nothing
local NEEDS_PLAN = 2   -- enum kvr_script_needs

---@class kvr.GateOptions
---@field rows string[] of a router, with rows.blocks; or of any other format
---@field format string? of import.lua; "router"
---@field candidate string|kvr.ScriptChoice|nil nil: only the knee is wanted
---@field against string|kvr.ScriptChoice|nil nil: the best of those that need no plan
---@field profile string
---@field replicas integer?
---@field router table fields of router.lua; plan_slots for a candidate that needs a plan
---@field slo_ttft_ms number
---@field failed number most share of failures
---@field gain number least share by which p99 must fall
---@field token_ms number? of each further token of a whole answer; nil: as near the knee
---@field judged number share of the rows, the last ones
---@field keys integer? only the traffic of so many of the hottest keys
---@field seeds integer
---@field first_seed integer
---@field drain_s number longest wait for an answer
---@field cells string folder
---@field binary string
---@field jobs integer
---@field say fun(text: string)

---@class kvr.GateTraffic
---@field path string of the requests in the row form
---@field hash string of these requests
---@field requests integer
---@field warmup integer of these
---@field rate number requests a second, as recorded
---@field span_s number
---@field bytes_per_token number? of the rows; nil: the profile's
---@field keys {key: string, rate: number}[] of the warm-up, by falling rate
---@field known number share of the judged requests whose key is one of them

---@class kvr.GateResult
---@field verdict "enable"|"keep"
---@field reason string
---@field traffic kvr.GateTraffic
---@field knee number requests a second
---@field loads kvr.GateLoad[]
---@field limits kvr.GateLimits
---@field candidate kvr.Policy
---@field against kvr.Policy
---@field fleet table
---@field router table
---@field seeds integer
---@field active_share number? least share of known keys; the command's
---@field race {names: string[], at_knee: string[]}? where the baseline is the best of these

-- ---- the traffic ----

-- Routing keys of the rows' first part, by falling rate, and how many of the others' they are.
local function count_keys(rows, warmup, span_s)
  local counts, names, known, judged = {}, {}, 0, 0
  for i, row in ipairs(rows) do
    local key = row.tenant
    if i <= warmup and key then
      if not counts[key] then names[#names + 1] = key end
      counts[key] = (counts[key] or 0) + 1
    elseif i > warmup then
      judged, known = judged + 1, known + (counts[key] and 1 or 0)
    end
  end
  table.sort(names, function(a, b)
    if counts[a] ~= counts[b] then return counts[a] > counts[b] end
    return a < b
  end)
  local keys = {}
  for i, name in ipairs(names) do keys[i] = { key = name, rate = counts[name] / span_s } end
  return keys, judged > 0 and known / judged or 0
end

-- Only those of the hottest keys, over all rows.
local function of_hottest(rows, count)
  local hottest, wanted, out = count_keys(rows, #rows, 1), {}, {}
  for i = 1, math.min(count, #hottest) do wanted[hottest[i].key] = true end
  for _, row in ipairs(rows) do
    if wanted[row.tenant] then out[#out + 1] = row end
  end
  return out
end

-- The requests in the row form, once for all cells, in a file that is named by what is in it. The
-- rows themselves are read once: they may come through a pipe.
local function write_trace(rows, folder)
  local lines = {}
  for i, row in ipairs(rows) do lines[i] = json.encode(row) .. "\n" end
  local text = table.concat(lines)
  local hash = ffi.hash128(text)
  local path = ("%s/%s.trace.jsonl"):format(folder, hash)
  if not store.read_file(path) then store.write_file(path, text) end
  return path, hash
end

---@param options kvr.GateOptions
---@return kvr.GateTraffic
function M.read(options)
  local rows, bytes, tokens = {}, 0, 0
  for row in import.rows(options.format or "router", options.rows) do
    if row.at_ms == nil then error("rows without arrivals cannot be replayed at a load", 0) end
    rows[#rows + 1] = row
    bytes, tokens = bytes + (row.input_bytes or 0), tokens + row.input_tokens
  end
  if options.keys then rows = of_hottest(rows, options.keys) end
  local warmup = math.floor(#rows * (1 - options.judged))
  if #rows - warmup < REQUESTS_MIN then
    error(("%d rows, of which %d would be judged; %d are needed"):format(#rows, #rows - warmup,
      REQUESTS_MIN), 0)
  end
  local span_s = (rows[#rows].at_ms - rows[1].at_ms) / 1000
  if span_s <= 0 then error("all rows arrive at one time", 0) end
  local warm_s = math.max((rows[warmup].at_ms - rows[1].at_ms) / 1000, span_s / #rows)
  local keys, known = count_keys(rows, warmup, warm_s)
  local path, hash = write_trace(rows, options.cells)
  return {
    path = path, hash = hash, requests = #rows,
    warmup = warmup, rate = (#rows - 1) / span_s, span_s = span_s, keys = keys, known = known,
    bytes_per_token = bytes > 0 and bytes / tokens or nil,
  }
end

-- ---- the knee ----

local function rounded(rate) return tonumber(("%.3g"):format(rate)) end

---The highest load that passes and the lowest that does not, to a tenth of each other; nil where
---nothing passes, or nothing fails.
---@param start number
---@param passes fun(rate: number): boolean
---@return number? knee, number? above
function M.find_knee(start, passes)
  local low, high, rate = nil, nil, rounded(start)
  for _ = 1, STEPS_MAX do
    if passes(rate) then low = rate else high = rate end
    if low and high and high / low <= CLOSE * 1.02 then break end
    rate = rounded(low and high and math.sqrt(low * high) or low and rate * STEP or rate / STEP)
  end
  return low, high
end

-- ---- replays ----

local function measure_of(result)
  -- JSON has no infinity: what is not there never came.
  local p99 = type(result.ttft_p99_all) == "number" and result.ttft_p99_all or math.huge
  return { hit = result.hit_rate, imbalance = result.imbalance, p99_ms = p99,
    failed = (result.requests - result.success) / result.requests,
    fallbacks = result.fallbacks, token_ms = result.collected.gate_tokens.token_ms }
end

local Gate = {}
Gate.__index = Gate

function Gate:experiment(policies, rate)
  local o, traffic = self.options, self.traffic
  return experiment.new {
    name = "gate", fleet = self.fleet, router = self.router,
    axes = { { "rate", rate } },
    workload = function(at)
      return workload.trace { files = traffic.path, rate = at.rate, bootstrap = true }
    end,
    policies = policies,
    measure = { warmup_requests = traffic.warmup, requests = traffic.requests - traffic.warmup,
      drain_s = o.drain_s },
    slo = { ttft_ms = o.slo_ttft_ms },
    collect = { package.searchpath("kvroute.gate_tokens", package.path) },
  }
end

---Measures of each policy by seed.
---@return table<string, kvr.GateMeasure[]>
function Gate:replay(choices, rate)
  local o = self.options
  local chains = self:experiment(choices, rate):chains(o.first_seed, o.seeds)
  local ran = runner.run(chains, {
    store = store.open(o.cells), argv = { o.binary, "run", "--worker" }, jobs = o.jobs,
  })
  if ran.interrupted then error("interrupted; what was run is kept", 0) end
  if ran.failures[1] then error(ran.failures[1].reason, 0) end
  local out = {}
  for _, chain in ipairs(chains) do
    local each = chain[1]
    out[each.policy] = out[each.policy] or {}
    table.insert(out[each.policy], measure_of(ran.records[each.key].result))
  end
  return out
end

-- Two scripts under labels of their own, so that a policy can stand against itself.
local function labelled(choice, label)
  local out = {}
  if type(choice) == "string" then choice = { choice } end
  for name, value in pairs(choice) do out[name] = value end
  out.label = label
  return out
end

function Gate:load(name, rate)
  self.options.say(("%s: %g requests a second"):format(name, rate))
  local found = self:replay({ self.baseline, self.candidate }, rate)
  return { name = name, rate = rate, against = found.against, candidate = found.candidate }
end

function Gate:knee()
  local knee, above = M.find_knee(self.traffic.rate, function(rate)
    local found = self:replay({ self.baseline }, rate).against
    local passing = verdict.passing(found, self.limits)
    self.options.say(("baseline at %g requests a second: %d of %d repetitions within the limits")
      :format(rate, passing, #found))
    return passing * 2 > #found
  end)
  if not knee then
    error(("the baseline is within the limits at no load down to %.3g requests a second"):format(
      above), 0)
  end
  return knee, above
end

local function check_plan(options, choice)
  if policy.needs(choice) % (2 * NEEDS_PLAN) >= NEEDS_PLAN and not options.router.plan_slots then
    error(("%s needs a plan: give --slots"):format(choice.script.name), 0)
  end
end

function Gate:set_baseline(choice)
  self.against = policy.resolve(choice)
  check_plan(self.options, self.against)
  self.baseline = labelled(choice, "against")
end

-- ---- the best baseline ----

-- Those of the folder that need no plan, without the candidate: what it is judged by is another.
-- A file that is no policy, such as one that is being written, is told of.
function Gate:reactive()
  local out, candidate = {}, self.judged.script
  local function look_at(name)
    local ok, found = pcall(policy.resolve, name)
    if not ok then
      self.options.say(("%s is left out: %s"):format(name, found))
    elseif policy.needs(found) % (2 * NEEDS_PLAN) < NEEDS_PLAN
      and not (found.script.hash == candidate.hash and next(candidate.params) == nil) then
      out[#out + 1] = name
    end
  end
  for file in lfs.dir(policy.folder) do
    local name = file:match("^(.+)%.lua$")
    if name and name ~= "types" then look_at(name) end
  end
  table.sort(out)
  return out
end

local function mean_log_p99(measures, limits)
  return (stats.mean(verdict.values(measures, function(measure)
    return math.log(math.min(measure.p99_ms, limits.patience_ms))
  end)))
end

---The one with the highest knee; of several that hold the same load, the one with the lowest p99.
---@return number knee, number? above
function Gate:best()
  local running, found = self:reactive(), nil
  local names = running
  local knee, above = M.find_knee(self.traffic.rate, function(rate)
    local measures, within = self:replay(running, rate), {}
    for _, name in ipairs(running) do
      if verdict.passing(measures[name], self.limits) * 2 > #measures[name] then
        within[#within + 1] = name
      end
    end
    self.options.say(("%g requests a second: %d of %d reactive policies within the limits%s")
      :format(rate, #within, #running, #within > 0 and #within <= 4
      and " (" .. table.concat(within, ", ") .. ")" or ""))
    if #within > 0 then running, found = within, measures end
    return #within > 0
  end)
  if not knee then
    error(("no reactive policy is within the limits at any load down to %.3g requests a second")
      :format(above), 0)
  end
  local best
  for _, name in ipairs(running) do
    local p99 = mean_log_p99(found[name], self.limits)
    if not best or p99 < best.p99 then best = { name = name, p99 = p99 } end
  end
  self.options.say(("the baseline is %s"):format(best.name))
  self.race = { names = names, at_knee = running }
  self:set_baseline(best.name)
  return knee, above
end

local function new(options)
  local self = setmetatable({ options = options }, Gate)
  if options.against then self:set_baseline(options.against) end
  self.judged = options.candidate and policy.resolve(options.candidate) or self.against
  check_plan(options, self.judged)
  self.candidate = labelled(options.candidate or options.against, "candidate")
  self.traffic = M.read(options)
  self.fleet = fleet.simulated { profile = options.profile, replicas = options.replicas,
    profile_set = { bytes_per_token = self.traffic.bytes_per_token } }
  self.router = {}
  for name, value in pairs(options.router) do self.router[name] = value end
  if self.router.plan_slots then self.router.plan_requests = self.traffic.warmup end
  self.limits = { ttft_ms = options.slo_ttft_ms, failed = options.failed, gain = options.gain,
    patience_ms = math.max(options.drain_s * 1000, options.slo_ttft_ms),
    token_ms = options.token_ms }
  return self
end

---The knee of the baseline alone.
---@param options kvr.GateOptions without a candidate
---@return number knee, number? above the lowest load that fails
function M.knee(options)
  return new(options):knee()
end

---@param options kvr.GateOptions
---@return kvr.GateResult
function M.run(options)
  local self = new(options)
  local knee, above
  if self.baseline then knee, above = self:knee() else knee, above = self:best() end
  local loads = { self:load("below", rounded(knee * BELOW)), self:load("near", knee) }
  if above then loads[3] = self:load("above", above) end
  local answer, reason = verdict.judge(loads, self.limits)
  return { verdict = answer, reason = reason, traffic = self.traffic, knee = knee, loads = loads,
    limits = self.limits, candidate = self.judged, against = self.against, race = self.race,
    fleet = self.fleet, router = self.router, seeds = options.seeds }
end

return M
