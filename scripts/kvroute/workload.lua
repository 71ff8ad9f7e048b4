-- What is asked, and when. Each function gives plain data for a cell; the requests themselves are
-- made by core/sim/workload.h, the same for the simulator and for live load.
--
-- Closed loop: `users` send their next turn `think_ms` after an answer. Open loop: requests come at
-- `rate` a second, whatever has become of those before.
local schema = require("kvroute.schema")

local M = {}

---@class kvr.Arrivals
---@field users number? closed loop: so many users
---@field think_ms number? 1, from the end of an answer to the next turn
---@field think_cv number? 0, its variation; 1 exponential
---@field start_ms number? 0, users start spread over this time
---@field rate number? open loop: requests a second
---@field gap_cv number? 0 even spacing, 1 Poisson, 1.9 bursts
---@field rate_end number? the rate goes there in a line ...
---@field ramp_ms number? ... within this time
---@field pool_s number? 5, of sessions: rate x pool_s users take turns in rounds
---@field times_ms number[]? open loop: requests come at these times
---@field time_scale number? 1, stretches all gaps of times_ms
---@field bootstrap boolean? blocks of the gaps of times_ms, drawn anew
---@field block_len number? of these blocks; 0: the cube root of all
local arrivals = {
  users = "count?", think_ms = "number?", think_cv = "number?", start_ms = "number?",
  rate = "number?", gap_cv = "number?", rate_end = "number?", ramp_ms = "number?",
  pool_s = "number?", times_ms = "table?", time_scale = "number?", bootstrap = "boolean?",
  block_len = "count?", arrivals_max = "count?", early_share = "number?",
}

---@class kvr.SessionsWorkload : kvr.Arrivals
---@field working_set number? 1, nominal tokens of all sessions over capacity_tokens
---@field sessions number? instead of working_set: so many
---@field skew number? 0, popularity of the i-th session is i^-skew
---@field turns number? 4 of a conversation
---@field capacity_tokens number? those of the fleet; 629,760 where engines have no profile
---@field user_bytes number? 1,792 of a user's message
---@field assistant_bytes number? 256 of a quoted reply
---@field system_bytes number? 512
---@field system_share number? 0.3 of the sessions have the system prompt
---@field branch_share number? 0.3 of the sessions begin as others of their family do
---@field branch_families number? 8
---@field branch_turns number? 1
---@field max_tokens number? 64
---@field early_share number? 0.2 of the answers stop by themselves
local sessions = {
  working_set = "number?", sessions = "count?", skew = "number?", turns = "count?",
  capacity_tokens = "number?", user_bytes = "count?", assistant_bytes = "count?",
  system_bytes = "count?", system_share = "number?", branch_share = "number?",
  branch_families = "count?", branch_turns = "count?", max_tokens = "count?",
}

---@class kvr.KeysWorkload : kvr.Arrivals
---@field keys number? 128
---@field template_tokens number? 4,400, the same in all requests
---@field context_tokens number? 180 of the key
---@field variant_tokens number? 2,400 of one of the key's variants
---@field variants number? 42 of each key
---@field whales number? 0, so many first keys ...
---@field whale_share number? ... share this much of the traffic evenly
---@field unique_tokens number? 400 new in each request ...
---@field unique_spread number? 0.5 ... times uniform in 1 - spread .. 1 + spread
---@field weight_shift number? 20, weight of the r-th key is (r + shift)^-power
---@field weight_power number? 0.85
---@field population number? instead of that law: `keys` are the most frequent of so many, whose
---  rates are lognormal
---@field weight_sigma number? 1.6476, their deviation
---@field weight_cap number? 0.0029 of all traffic is the most that one of them has
---@field weights number[]? instead of that law, by key
---@field drift_sigma number? 0, weights walk at random: times exp(sigma x normal) ...
---@field drift_requests number? ... every so many requests
---@field length_sigma number? 0, a key's own texts are exp(sigma x normal) times as long
---@field thread_more number? 0: each request stands alone; else that part of all threads of turns
---  about one key has two or more, in an open loop of `rate`
---@field thread_end number? 0.3, from the second on the chance that a turn is the last
---@field thread_gap_ms number? 30,000, mean gap between two turns
---@field output_tokens number? 48
---@field output_cv number? 0 fixed, else lognormal
---@field output_max number?
local keys = {
  keys = "count?", template_tokens = "number?", context_tokens = "number?",
  variant_tokens = "number?", variants = "count?", whales = "count?", whale_share = "number?",
  unique_tokens = "number?", unique_spread = "number?", weight_shift = "number?",
  weight_power = "number?", population = "count?", weight_sigma = "number?",
  weight_cap = "number?", weights = "table?", output_tokens = "count?", output_cv = "number?",
  output_max = "count?", drift_sigma = "number?", drift_requests = "number?",
  length_sigma = "number?", thread_more = "number?", thread_end = "number?",
  thread_gap_ms = "number?",
}

---@class kvr.TraceWorkload : kvr.Arrivals
---@field files string|string[] of a recorded trace
---@field format string? what they are, as `kvroute import` says it: "rows"
---@field import table? options of that format, like { spread = "even" }
---@field closed boolean? sessions wait for their answers; otherwise requests come at their times
local trace = {
  files = "string|table", format = "string?", import = "table?", closed = "boolean?",
}

local function with_arrivals(own)
  local out = {}
  for name, kind in pairs(arrivals) do out[name] = kind end
  for name, kind in pairs(own) do out[name] = kind end
  return out
end

local types = {
  sessions = with_arrivals(sessions), keys = with_arrivals(keys), trace = with_arrivals(trace),
}

local function make(kind, name, options)
  local out = schema.copy(schema.check("workload." .. name, options, types[kind]))
  local loops = (out.users and 1 or 0) + (out.rate and not out.bootstrap and 1 or 0)
    + (out.times_ms and 1 or 0)
  if loops > 1 then
    error(("workload.%s: one of users, rate and times_ms, not several"):format(name), 0)
  end
  out.arrivals = out.bootstrap and "bootstrap" or out.times_ms and "times" or out.rate and "rate"
    or kind == "trace" and not out.closed and "times" or "closed"
  out.bootstrap = nil
  out.kind = kind
  return out
end

---Conversations of several turns from a pool of sessions: the study's workload.
---@param options kvr.SessionsWorkload
---@return table
function M.kvroute(options)
  return make("sessions", "kvroute", options)
end

---Independent requests, each with a template, a key's context, and something new.
---@param options kvr.KeysWorkload
---@return table
function M.keys(options)
  return make("keys", "keys", options)
end

---Requests of a recorded trace, in any format that `kvroute import` reads.
---@param options kvr.TraceWorkload
---@return table
function M.trace(options)
  local out = make("trace", "trace", options)
  if out.users then error("workload.trace: its sessions are the users", 0) end
  local files = type(out.files) == "string" and { out.files } or out.files
  out.trace = require("kvroute.trace").new(out.format or "rows", files, out.import)
  out.files, out.format, out.import, out.closed = nil, nil, nil, nil
  return out
end

---@return string # "closed" or "open": what may never share a column
function M.regime(workload)
  return workload.arrivals == "closed" and "closed" or "open"
end

return M
