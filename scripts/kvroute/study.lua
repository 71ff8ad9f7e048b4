-- What the experiments of the kvroute study share: five emulated RTX 3090, 32 users who never
-- pause, conversations of four turns, the limits that count as good. An experiment says only what
-- is different.
--
--   return study.experiment {
--     name = "load_axis", question = "...", axes = { { "users", 1, 4, 16 } },
--     ask = function(at) return { users = at.users } end,       options of lab.workload.kvroute
--     policies = { "round_robin", study.off, "prefix_affinity" },
--   }
--
-- Each of them can be spot-checked live, with emulated engines behind real sockets, where it asks
-- for nothing that only the simulator has (collectors, slow cards, a replica that is lost):
--
--   kvroute run experiments/frozen.lua --fleet emulated --set seconds=150
local experiment = require("kvroute.experiment")
local fleet = require("kvroute.fleet")
local report = require("kvroute.report")
local router = require("kvroute.router")
local schema = require("kvroute.schema")
local settings = require("kvroute.settings")
local tables = require("kvroute.table")
local workload = require("kvroute.workload")

local M = {}

M.USERS = 32
-- SA and whatever else may pile conversations on one card has two states: nine repetitions.
M.SEEDS = 9

M.working_sets = { 0.25, 1, 3, 8 }
M.skews = { 0, 1, 1.4 }
M.grid_axes = {
  x = { axis = "skew", label = "skew of popularity (Zipf exponent)" },
  y = { axis = "working_set", label = "working set / KV cache of the fleet" },
}

M.slo = { ttft_ms = 990, itl_ms = 24 }
M.closed = { seconds = 300, warmup_s = 50 }
M.open = { seconds = 150, warmup_s = 50 }

M.off = { "prefix_affinity", spill = "off" }
M.mean = { "prefix_affinity", spill = "load_mean" }
-- The rule that does not misfire at low load, see spill_signal.lua.
M.mean_3 = { "prefix_affinity", spill = { "load_mean", params = { factor = 3 } },
  label = "prefix_affinity /load_mean 3" }
M.tokens = { "prefix_affinity", spill = "tokens" }

---The study's policies, from the plainest to the best informed.
M.policies = {
  "round_robin", "least_outstanding", "session_affinity", "bounded_session_affinity",
  "prefix_hash", "prefix_affinity",
}

-- Half of the first tokens come within 60 ms (cached) and half after 400 (computed): where the
-- median lies in that gap it jumps from one side to the other between two halves that do the same.
-- Nothing wears or heats under virtual time, so these two flags say nothing here.
local IGNORE = { "cold opening", "fleet slowed" }

-- What --set takes in every experiment:
--   fleet     simulated, or emulated: in real time, one repetition
--   scale     simulated seconds a second of emulated engines
--   seconds   measured in all, the warm-up in proportion; 0 as the experiment has it
--   port      of the first replica: places them on the ring, and so alike in both fleets; 0 any
local function declared()
  local set = settings.declare { fleet = "simulated", scale = 20, seconds = 0, port = 0 }
  if set.fleet ~= "simulated" and set.fleet ~= "emulated" then
    error(("--fleet is simulated or emulated, not %s"):format(set.fleet), 0)
  end
  return set
end

local function addresses(port, replicas)
  local out = {}
  for i = 1, replicas do out[i] = ("127.0.0.1:%d"):format(port + i - 1) end
  return table.concat(out, " ")
end

---@param changes table? of lab.fleet.simulated
---@return table
function M.fleet(changes)
  local set, options = declared(), { profile = "rtx3090-8b-awq", replicas = 5 }
  for name, value in pairs(changes or {}) do options[name] = value end
  if set.fleet == "emulated" then
    options.time_scale, options.port = set.scale, set.port
    return fleet.emulated(options)
  end
  if set.port > 0 then options.authorities = addresses(set.port, options.replicas) end
  return fleet.simulated(options)
end

local function lasting(measure, seconds)
  if seconds == 0 then return measure end
  return function(at)
    local out = schema.copy(type(measure) == "function" and measure(at) or measure)
    out.warmup_s, out.seconds = out.warmup_s * seconds / out.seconds, seconds
    return out
  end
end

---@class kvr.StudyDefinition : kvr.Definition
---@field ask (fun(at: table): kvr.SessionsWorkload)? what differs from 32 users at working set 1

local function asked(ask)
  return function(at)
    local options = ask and ask(at) or {}
    if not options.rate and not options.users then options.users = M.USERS end
    if not options.sessions and not options.working_set then options.working_set = 1 end
    options.skew = options.skew or 0 -- said, so that equal points are equal cells
    return workload.kvroute(options)
  end
end

---The axes of the pressure grid; --set working_sets=1,3 and --set skews=0 take a part of it.
---@return any[][]
function M.grid()
  local set = settings.declare { working_sets = M.working_sets, skews = M.skews }
  return { { "working_set", unpack(set.working_sets) }, { "skew", unpack(set.skews) } }
end

---An experiment of the study: what `definition` does not say is as in the frozen comparison.
---@param definition kvr.StudyDefinition
---@return kvr.Experiment
function M.experiment(definition)
  local out = {
    fleet = M.fleet(), router = router.study, measure = M.closed, slo = M.slo, ignore = IGNORE,
    workload = asked(definition.ask), policies = M.policies, seeds = M.SEEDS,
  }
  for name, value in pairs(definition) do out[name] = value end
  out.ask = nil
  local set = declared()
  out.measure = lasting(out.measure, set.seconds)
  if set.fleet == "emulated" then
    -- Under a name of its own: it never stands where simulated results are.
    out.name, out.seeds = out.name .. "-emulated", 1
  end
  return experiment.new(out)
end

-- ---- an axis of load, in both loops ----

-- "c32": 32 users in a closed loop; "a6": 6 arrivals a second in an open one.

---@param loads string[] --set loads=a6,a8 takes others
---@return any[][]
function M.loads(loads)
  return { { "load", unpack(settings.declare({ loads = loads }).loads) } }
end

---@param at {load: string}
---@return number
function M.load_number(at)
  return tonumber(at.load:sub(2))
end

---@return kvr.SessionsWorkload
function M.asked_at_load(at)
  local number = M.load_number(at)
  if at.load:sub(1, 1) == "c" then return { users = number } end
  return { rate = number }
end

---@return kvr.Measure
function M.measure_at_load(at)
  return at.load:sub(1, 1) == "c" and M.closed or M.open
end

M.load_axes = {
  closed = { label = "users", log2 = true, min = 1, max = 256,
    ticks = { 1, 4, 8, 16, 32, 64, 128, 256 } },
  open = { label = "requests a second", min = 2, max = 20 },
}

-- ---- tables ----

-- Results without the policies of which a metric says nothing but zero.
local function without_zeros(found, name)
  local said, pools = {}, {}
  for _, pool in ipairs(found.pools) do
    if pool:value(name) ~= 0 then said[pool.policy] = true end
  end
  for _, pool in ipairs(found.pools) do
    if said[pool.policy] then pools[#pools + 1] = pool end
  end
  return setmetatable({ axes = found.axes, pools = pools }, getmetatable(found))
end

---A matrix a metric, of all places and of the policies that are not zero everywhere.
---@param found kvr.Results
---@param metrics string[]
---@return string
function M.matrices(found, metrics)
  local out = {}
  for i, name in ipairs(metrics) do
    out[i] = report.text(without_zeros(found, name), { matrix = name })
  end
  return table.concat(out, "\n")
end

local function margin(versus)
  if versus.separated then return versus.text end
  return math.abs(versus.percent) < math.huge and ("(%+.0f %%)"):format(versus.percent)
end

---How policies stand against others at each place: pairs of { policy, baseline }.
---@param found kvr.Results
---@param pairs_of string[][]
---@param name string? of a metric; goodput
---@return string
function M.margins(found, pairs_of, name)
  local head, rows = { table.concat(found.axes, ", ") }, {}
  for i, pair in ipairs(pairs_of) do
    head[i + 1] = ("%s\nover %s"):format(pair[1], pair[2])
  end
  for _, pools in ipairs(found:places()) do
    local row, by_policy = { pools[1].place == "" and "all" or pools[1].place }, {}
    for _, pool in ipairs(pools) do by_policy[pool.policy] = pool end
    for i, pair in ipairs(pairs_of) do
      local ours, theirs = by_policy[pair[1]], by_policy[pair[2]]
      row[i + 1] = false
      if ours and theirs then
        row[i + 1] = margin(ours:against(theirs, name or "goodput"))
      end
    end
    rows[#rows + 1] = row
  end
  return tables.text({
    title = ("margins of %s"):format(name or "goodput"), head = head, rows = rows,
    notes = { "in parentheses: the ranges of the repetitions touch" },
  })
end

return M
