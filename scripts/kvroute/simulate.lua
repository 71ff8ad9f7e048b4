-- Runs a cell in the simulator: options from its data, scripts from its texts, the result as a
-- table. Requests stay in C; collectors see their records where they lie.
local ffi = require("kvroute.ffi")
local collect = require("kvroute.collect")
local evidence = require("kvroute.evidence")
local fleets = require("kvroute.fleet")
local policy = require("kvroute.policy")
local schema = require("kvroute.schema")
local store = require("kvroute.store")
local trace = require("kvroute.trace")

local M = {}

local SLICE_EVENTS = 20000 -- between two looks at records and rows

local kinds = { sessions = 0, keys = 1, trace = 2 }
local arrivals = { closed = 0, rate = 1, times = 2, bootstrap = 3 }
local changes = { restart = 0, slowdown = 1, drain = 2, restore = 3 }

local function invalid(...) error({ reason = (...):format(select(2, ...)) }) end

-- What it raises is the user's mistake, and no bug.
local function checked(f, ...)
  local ok, out = pcall(f, ...)
  if not ok then error({ reason = out }) end
  return out
end

local function assign(...) checked(ffi.assign, ...) end

-- Numbers as a C array. `kept` holds it until the simulation has been made.
local function array(kept, values, what)
  kept[#kept + 1] = checked(ffi.doubles, values, what)
  return kept[#kept], #values
end

local function set_profile(options, fleet)
  local from, why = fleets.with_profile(fleet)
  if not from then invalid("%s", why) end
  options.profile = from.profile
  assign(options.profile, "kvr_profile", fleet.profile_set or {}, "profile_set")
end

---What the tokenizer of a fleet's profile makes of text.
---@param fleet table
---@return number
function M.bytes_per_token(fleet)
  local options = ffi.new("struct kvr_sim_options")
  set_profile(options, fleet)
  return options.profile.bytes_per_token
end

local function set_fleet(options, fleet, kept)
  local plain = schema.copy(fleet)
  for _, name in ipairs({ "kind", "profile", "profile_set", "profile_text", "slowdowns", "weights",
    "changes" }) do
    plain[name] = nil
  end
  set_profile(options, fleet)
  assign(options, "kvr_sim_options", plain, "fleet.simulated")
  local replicas = fleet.replicas or options.profile.replicas
  for _, name in ipairs({ "slowdowns", "weights" }) do
    if fleet[name] then
      if #fleet[name] ~= replicas then
        invalid("fleet.%s has %d values for %d replicas", name, #fleet[name], replicas)
      end
      options[name] = array(kept, fleet[name], name)
    end
  end
  if not fleet.changes then return end
  local list = ffi.new("struct kvr_sim_change[?]", #fleet.changes)
  for i, change in ipairs(fleet.changes) do
    local kind = changes[change.kind]
    if not kind then invalid("changes[%d]: no kind %s", i, tostring(change.kind)) end
    list[i - 1].at_ms, list[i - 1].kind = change.at_s * 1000, kind
    list[i - 1].replica, list[i - 1].value = change.replica, change.value or 0
  end
  kept[#kept + 1] = list
  options.changes, options.changes_len = list, #fleet.changes
end

local function set_workload(options, workload, kept)
  local plain = schema.copy(workload)
  plain.kind, plain.arrivals = kinds[workload.kind], arrivals[workload.arrivals]
  for _, name in ipairs({ "times_ms", "weights" }) do
    if workload[name] then
      local field = name == "times_ms" and "times_len" or "weights_len"
      options.workload[name], options.workload[field] = array(kept, workload[name], name)
      plain[name] = nil
    end
  end
  plain.trace = nil
  assign(options.workload, "kvr_workload_options", plain, "the workload")
end

local function set_measure(options, measure, slo)
  options.duration_ms = (measure.seconds or 0) * 1000
  options.warmup_ms = (measure.warmup_s or 0) * 1000
  options.requests = measure.requests or 0
  options.warmup_requests = measure.warmup_requests or 0
  options.drain_ms = (measure.drain_s or 0) * 1000
  options.timeout_ms = (measure.timeout_s or 0) * 1000
  options.slo_ttft_ms = slo.ttft_ms or math.huge
  options.slo_itl_ms = slo.itl_ms or math.huge
end

---The options of a cell.
---@param spec table
---@param kept table must live until kvr_sim_create has returned
---@return ffi.cdata*
function M.options(spec, kept)
  local options = ffi.new("struct kvr_sim_options")
  ffi.simulator().kvr_sim_defaults(options)
  set_fleet(options, spec.fleet, kept)
  assign(options, "kvr_sim_options", spec.router, "router")
  set_workload(options, spec.workload, kept)
  set_measure(options, spec.measure, spec.slo)
  options.seed = spec.seed
  return options
end

local function load_scripts(sim, job)
  for _, role in ipairs({ "policy", "spill" }) do
    local script = job.spec[role]
    if type(script) == "table" then
      local ok, why = pcall(policy.load, sim, role, script, job.texts[script.hash])
      if not ok then error({ reason = why }) end
    end
  end
end

local function write_rows(sim, draft)
  local C, len = ffi.simulator(), ffi.new("size_t[1]")
  local bytes = C.kvr_sim_rows(sim, len)
  if len[0] == 0 then return end
  checked(draft.write, draft, ffi.string(bytes, len[0]))
  C.kvr_sim_take_rows(sim, len[0])
end

-- Shows each record that has come since to all collectors, and lets it go.
local function see_records(sim, see, first)
  local C, len = ffi.simulator(), ffi.new("uint32_t[1]")
  local records = C.kvr_sim_records(sim, first, len)
  while records ~= nil do
    for i = 0, len[0] - 1 do
      for j = 1, #see do see[j](records[i]) end
    end
    first = first + len[0]
    records = C.kvr_sim_records(sim, first, len)
  end
  C.kvr_sim_forget_records(sim, first)
  return first
end

local function run(sim, see, rows, alive)
  local C, first, more = ffi.simulator(), 0, 1
  while more ~= 0 do
    alive()
    more = C.kvr_sim_run(sim, -1ULL, SLICE_EVENTS)
    first = see_records(sim, see, first)
    if rows then write_rows(sim, rows) end
  end
end

local function reasons(sim)
  local C, out, id = ffi.simulator(), {}, 0
  local name = C.kvr_sim_reason_name(sim, id)
  while name ~= nil do
    local count = C.kvr_sim_reason_count(sim, id)
    if count > 0 then out[ffi.string(name)] = count end
    id = id + 1
    name = C.kvr_sim_reason_name(sim, id)
  end
  return out
end

local function replicas(sim, count)
  local out, replica = {}, ffi.new("struct kvr_sim_replica")
  for i = 0, count - 1 do
    if ffi.simulator().kvr_sim_replica(sim, i, replica) ~= 0 then break end
    out[i + 1] = ffi.table(replica, "kvr_sim_replica")
  end
  return out
end

-- Plans that were made, with what they change.
local function plans(sim)
  local out, plan = {}, ffi.new("struct kvr_sim_plan")
  while ffi.simulator().kvr_sim_plan_at(sim, #out, plan) == 0 do
    out[#out + 1] = ffi.table(plan, "kvr_sim_plan")
  end
  return out
end

---@param job {spec: table, texts: table<string, string>, rows: string?}
---@param alive (fun())? to be called at least every few seconds
---@return table
function M.run(job, alive)
  local C, failure = ffi.simulator(), ffi.new("struct kvr_error")
  local kept = {} -- arrays that the options point to
  local options = M.options(job.spec, kept)
  local see, finish = collect.start(job.spec.collect, job.texts, job.spec)
  local judge
  see[#see + 1], judge = evidence.collector()
  options.records = 1
  options.rows = job.rows and 1 or 0
  local sim = C.kvr_sim_create(options, failure)
  if sim == nil then error({ reason = ffi.string(failure.text) }) end
  ffi.gc(sim, C.kvr_sim_destroy)
  if job.spec.workload.trace then trace.fill(C.kvr_sim_workload(sim), job.spec.workload.trace) end
  load_scripts(sim, job)
  local rows = job.rows and checked(store.draft, job.rows)
  run(sim, see, rows, alive or function() end)
  if rows then checked(rows.keep, rows) end
  local result = ffi.new("struct kvr_sim_result")
  C.kvr_sim_result(sim, result)
  local out = ffi.table(result, "kvr_sim_result")
  out.workload = ffi.string(C.kvr_workload_name(C.kvr_sim_workload(sim)))
  out.profile = ffi.string(options.profile.name)
  out.reasons = reasons(sim)
  out.replicas = replicas(sim, options.replicas > 0 and options.replicas
    or options.profile.replicas)
  local made = plans(sim)
  if #made > 0 then out.plans = made end
  if #job.spec.collect > 0 then out.collected = finish() end
  out.evidence = judge(out, job.spec.workload.arrivals ~= "closed")
  C.kvr_sim_destroy(ffi.gc(sim, nil))
  return out
end

return M
