-- What the experiments of CacheRoute share (Cheng, "CacheRoute: Planned Prefix-Affinity Routing for
-- Large-Scale LLM Serving", 2026): its fleets of thirty engines, its ladders of rates, its six
-- policies, what is measured, and tables with its figures beside ours.
--
-- The paper does not state its requests' shape. What is asked here is a reconstruction: requests of
-- 7,400 tokens, [4,400 for all][180 of the key][2,400 of one of the key's 42 variants][400 new],
-- chosen so that Table 1 comes out for four policies on 70B engines; all else follows. So every
-- table says "reconstructed workload".
--
--   return cacheroute.experiment {
--     name = "cacheroute_table1", question = "...", profile = cacheroute.PROFILE_70B,
--     rates = cacheroute.RATES_70B, ask = function(at) return { keys = 128 } end, report = ...
--   }
local capacity = require("kvroute.capacity")
local experiment = require("kvroute.experiment")
local fleet = require("kvroute.fleet")
local tables = require("kvroute.table")
local workload = require("kvroute.workload")

local M = {}

M.PROFILE_70B, M.PROFILE_8B = "h100x2-70b-fp8", "h100-8b-bf16"
M.PROFILE_32B, M.PROFILE_FP16 = "h100x2-32b-bf16", "h100x2-70b-fp16"
M.RATES_70B = { 30, 60, 80, 100, 120, 140, 160, 180, 220, 300 }
M.RATES_8B = { 30, 60, 100, 160, 240, 360, 500 }
M.SLOTS = 5 -- for each engine: 150 keys, so 128 fit and 256 do not

M.policies = {
  "p2c", "session_affinity", "bounded_session_affinity", "dualmap", "preble_cap", "cacheroute",
}
M.two = { "p2c", "cacheroute" }

---What the paper calls our policies.
M.titles = {
  p2c = "Flat-LB", session_affinity = "Sticky", bounded_session_affinity = "CHWBL",
  dualmap = "DualMap", preble_cap = "Preble", cacheroute = "CacheRoute",
}

-- From cold caches: the first 16,000 requests fill them and are not measured. A client waits 30 s.
M.measure = { warmup_requests = 16000, requests = 5000, drain_s = 30, timeout_s = 30 }

M.LIMIT_MS = 3500

-- Beyond their knees policies are meant to fall behind, and their tails are asked for.
local IGNORE = { "past saturation", "failures", "fleet slowed", "cold opening" }

---@class kvr.CacherouteDefinition : kvr.Definition
---@field profile string? or `fleet`
---@field rates number[]? the ladder, rising; each policy and seed climbs until over 5 % fail
---@field all boolean? climb all of it: some table shows one rate
---@field ask (fun(at: table): kvr.KeysWorkload)? what differs from 128 keys at `at.rate`, Poisson
---@field router (fun(at: table): kvr.RouterSettings)? what differs from a plan with five slots

local function over(defaults, changes)
  local out = {}
  for name, value in pairs(defaults) do out[name] = value end
  for name, value in pairs(changes or {}) do out[name] = value end
  return out
end

-- A function of the place, or a table for all places, as a table.
local function at_place(what, at)
  if type(what) == "function" then return what(at) end
  return what
end

---@param definition kvr.CacherouteDefinition
---@return kvr.Experiment
function M.experiment(definition)
  local own = over({
    fleet = definition.fleet or fleet.simulated { profile = definition.profile },
    policies = M.policies, measure = M.measure, slo = { ttft_ms = M.LIMIT_MS },
    seeds = 3, first_seed = 2, ignore = IGNORE,
  }, definition)
  local ask, router = definition.ask, definition.router
  own.workload = own.workload or function(at)
    return workload.keys(over({ keys = 128, gap_cv = 1, rate = rawget(at, "rate") },
      at_place(ask, at)))
  end
  own.router = function(at)
    return over({ ring_vnodes = 4, plan_slots = M.SLOTS, plan_at_start = true },
      at_place(router, at))
  end
  local rates = definition.rates
  if rates and definition.all then
    own.axes = over(definition.axes or {})
    own.axes[#own.axes + 1] = { "rate", unpack(rates) }
  elseif rates then
    own.ladder = { "rate", unpack(rates) }
    own.ladder.stop = capacity.hopeless
  end
  for _, name in ipairs({ "profile", "rates", "all", "ask" }) do own[name] = nil end
  return experiment.new(own)
end

---Ours, and what the paper has in brackets.
---@param ours string|false
---@param paper string|number|nil
---@return string|false
function M.beside(ours, paper)
  return ours and paper and ("%s [%s]"):format(ours, tostring(paper)) or ours
end

---A table of capacities: a line for each policy, a column for each place.
---@param results kvr.Results
---@param columns {title: string, at: table?, limit_ms: number?, paper: table<string, any>?}[]
---@return kvr.Table
function M.capacities(results, columns)
  local rows, head = {}, { "policy" }
  for j, column in ipairs(columns) do head[j + 1] = column.title end
  for i, policy in ipairs(results:policies()) do
    rows[i] = { M.titles[policy] or policy }
    for j, column in ipairs(columns) do
      local found = capacity.of(results, policy, column.at, column.limit_ms or M.LIMIT_MS)
      rows[i][j + 1] = M.beside(capacity.text(found), (column.paper or {})[policy])
    end
  end
  return { head = head, rows = rows }
end

M.NOTES = {
  "Reconstructed workload, emulated engines; in brackets the paper's measurement on H100.",
}

---A table as text, with what all of them have to say below.
---@param table_ kvr.Table
---@param ... string more notes
---@return string
function M.text(table_, ...)
  local notes = {}
  for _, list in ipairs({ M.NOTES, capacity.NOTES, { ... } }) do
    for _, line in ipairs(list) do notes[#notes + 1] = line end
  end
  table_.notes = notes
  return tables.text(table_)
end

return M
