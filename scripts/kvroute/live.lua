-- Runs a cell in real time: a router of our own before emulated or real engines, and `kvroute load`
-- before it. The result has the fields of a simulated one, read from the driver's rows a line at a
-- time; what cannot be seen from outside is absent.
local cjson = require("cjson")
local contamination = require("kvroute.contamination")
local deployment = require("kvroute.deployment")
local drift = require("kvroute.drift")
local evidence = require("kvroute.evidence")
local ffi = require("kvroute.ffi")
local import = require("kvroute.import")
local json = require("kvroute.json")
local process = require("kvroute.process")
local simulate = require("kvroute.simulate")
local store = require("kvroute.store")
local traces = require("kvroute.trace")

local M = {}

local FLAGGED = 3 -- exit status of a load that was done and has flags

local function fail(...) error({ reason = (...):format(select(2, ...)) }) end

-- ---- the driver ----

local function add(argv, ...)
  for _, word in ipairs({ ... }) do argv[#argv + 1] = tostring(word) end
end

local function write_trace(path, trace)
  local ok, why = pcall(traces.check, trace)
  if not ok then fail("%s", why) end
  local file = assert(io.open(path, "wb"))
  for row in import.rows(trace.format, trace.files, trace.options) do
    file:write(json.encode(row), "\n")
  end
  assert(file:close())
  return path
end

local function add_workload(argv, where, spec)
  local workload = spec.workload
  for _, name in ipairs({ "weights", "block_len" }) do
    if workload[name] then fail("the live driver has no workload with %s", name) end
  end
  for name, value in pairs(workload) do
    if name == "trace" then
      add(argv, "--trace", write_trace(where.folder .. "/trace.jsonl", value))
      if workload.arrivals == "closed" then add(argv, "--closed") end
    elseif name == "times_ms" then
      local file = assert(io.open(where.folder .. "/times", "wb"))
      file:write(table.concat(value, "\n"), "\n")
      assert(file:close())
      add(argv, "--times", where.folder .. "/times")
    elseif workload.kind ~= "trace" or (name ~= "kind" and name ~= "arrivals") then
      add(argv, "--set", ("%s=%s"):format(name, tostring(value)))
    end
  end
  if spec.fleet.profile then
    add(argv, "--set", ("bytes_per_token=%.17g"):format(simulate.bytes_per_token(spec.fleet)))
  end
end

local function driver_argv(where, spec)
  local measure, slo = spec.measure, spec.slo
  local argv = {
    where.binary, "load", where.url, "--seed", tostring(spec.seed), "--quiet", "--json",
    "--time-scale", tostring(where.scale), "--rows", where.folder .. "/driver.jsonl",
  }
  add_workload(argv, where, spec)
  if (measure.warmup_requests or 0) > 0 then fail("the live driver's warm-up is in seconds") end
  if measure.timeout_s then fail("the live driver's clients wait for their answers") end
  if measure.seconds then add(argv, "--duration", measure.seconds) end
  if measure.requests then add(argv, "--requests", measure.requests) end
  if measure.warmup_s then add(argv, "--warmup", measure.warmup_s) end
  if slo.ttft_ms then add(argv, "--goodput", "ttft:" .. slo.ttft_ms) end
  if slo.itl_ms then add(argv, "--goodput", "itl_p50:" .. slo.itl_ms) end
  return argv
end

---@return table # the driver's report
local function drive(where, spec, alive)
  local driver = process.start(driver_argv(where, spec), 1)
  local report = driver:wait_line("^({.*})$", math.huge, alive)
  local how = driver:finish(false)
  local status = tonumber(how:match("^exited with (%d+)"))
  if not report or (status ~= 0 and status ~= FLAGGED) then fail("kvroute load %s", how) end
  return cjson.decode(report)
end

-- ---- what came out ----

-- As the simulator has them: between the two nearest ranks.
local function quantiles(values)
  local names = { p50 = 0.5, p90 = 0.9, p95 = 0.95, p99 = 0.99, max = 1 }
  local out = {}
  table.sort(values)
  if #values == 0 then return out end
  for name, share in pairs(names) do
    local rank = share * (#values - 1)
    local low = math.floor(rank)
    local value, above = values[low + 1], values[math.min(low + 2, #values)]
    out[name] = value + (above - value) * (rank - low)
  end
  local sum = 0
  for _, value in ipairs(values) do sum = sum + value end
  out.mean = sum / #values
  return out
end

local function number(value)
  return type(value) == "number" and value or nil
end

-- What the router's rows say of each request: whether the spill rule moved it, or C decided, and
-- how long it took to the decision and to the write to the replica. These two are what the clock on
-- the wall says, whatever the time scale is.
local function read_router_rows(path)
  local out = {}
  for line in io.lines(path) do
    local row = cjson.decode(line)
    if row.request_id then
      out[row.request_id] = {
        spilled = row.preferred and true, fallback = row.fallback and true,
        decided_ms = number(row.decided_ms), overhead_ms = number(row.overhead_ms),
      }
    end
  end
  return out
end

local function count_routed(counts, routed)
  if not routed then return end
  if routed.spilled then counts.spilled = counts.spilled + 1 end
  if routed.fallback then counts.fallbacks = counts.fallbacks + 1 end
  table.insert(counts.decided, routed.decided_ms)
  table.insert(counts.overhead, routed.overhead_ms)
end

local function new_counts()
  return {
    requests = 0, success = 0, failed = 0, dropped = 0, cancelled = 0, good = 0, late_ttft = 0,
    slow_itl = 0, prompt_tokens = 0, cached_tokens = 0, output_tokens = 0, spilled = 0,
    fallbacks = 0, cold = 0, deflected = 0, believed_tokens = 0, honoured_tokens = 0,
    last_ms = -math.huge, ends_ms = {},
    reasons = {}, replicas = {}, ttft = {}, itl = {}, itl_max = {}, e2el = {}, decided = {},
    overhead = {},
  }
end

local function count_decision(counts, row)
  local reason = row.reason
  if type(reason) ~= "string" or reason == "" then return end
  counts.reasons[reason] = (counts.reasons[reason] or 0) + 1
  if reason == "cold" then counts.cold = counts.cold + 1 end
  if reason:find("_deflected$") then counts.deflected = counts.deflected + 1 end
  local replica = row.replica
  counts.replicas[replica] = (counts.replicas[replica] or 0) + 1
end

local function count_tokens(counts, row)
  local prompt, cached = number(row.prompt_tokens), number(row.cached_tokens)
  counts.unread = counts.unread or not prompt or not cached
  if not prompt or not cached then return end
  counts.prompt_tokens = counts.prompt_tokens + prompt
  counts.cached_tokens = counts.cached_tokens + cached
  local match = number(row.match_bytes)
  if not match or row.prompt_bytes == 0 then return end
  local believed = math.floor(match * prompt / row.prompt_bytes + 0.5)
  counts.believed_tokens = counts.believed_tokens + believed
  counts.honoured_tokens = counts.honoured_tokens + math.min(believed, cached)
end

local function count_success(counts, row, slo)
  local ttft, itl = row.ttft_ms, number(row.itl_p50_ms) or 0
  counts.success = counts.success + 1
  counts.output_tokens = counts.output_tokens + row.output_tokens
  if row.good then counts.good = counts.good + 1 end
  if ttft > (slo.ttft_ms or math.huge) then counts.late_ttft = counts.late_ttft + 1 end
  if itl > (slo.itl_ms or math.huge) then counts.slow_itl = counts.slow_itl + 1 end
  table.insert(counts.ttft, ttft)
  table.insert(counts.itl, itl)
  table.insert(counts.itl_max, number(row.itl_max_ms) or 0)
  table.insert(counts.e2el, row.e2el_ms)
  count_tokens(counts, row)
end

-- When it was due, or sent; and when it ended, if it did.
local function count_times(counts, row)
  local at = number(row.due_at_ms) or row.started_at_ms
  counts.last_ms = math.max(counts.last_ms, at)
  table.insert(counts.ends_ms, number(row.e2el_ms) and row.started_at_ms + row.e2el_ms
    or math.huge)
  return at
end

-- The share of the requests that were open when the last one arrived.
local function backlog(counts)
  local open = 0
  for _, end_ms in ipairs(counts.ends_ms) do
    if end_ms > counts.last_ms then open = open + 1 end
  end
  if #counts.ends_ms > 0 then return open / #counts.ends_ms end
end

local function count(where, slo)
  local counts, seen = new_counts(), drift.new()
  local routed = read_router_rows(where.rows)
  for line in io.lines(where.folder .. "/driver.jsonl") do
    local row = cjson.decode(line)
    if not row.warmup then
      counts.requests = counts.requests + 1
      count_decision(counts, row)
      count_routed(counts, routed[row.request_id])
      local ok = row.outcome == "success"
      if ok then
        count_success(counts, row, slo)
      else
        counts[row.outcome] = counts[row.outcome] + 1
      end
      seen:see(count_times(counts, row), row.turn, ok and row.ttft_ms or nil)
    end
  end
  return counts, seen
end

local function busiest(counts)
  local most, least, all, members = 0, math.huge, 0, 0
  for _, requests in pairs(counts.replicas) do
    most, least = math.max(most, requests), math.min(least, requests)
    all, members = all + requests, members + 1
  end
  return most, least, all, members
end

local function ratio(above, below)
  if below > 0 then return above / below end
end

local COPIED = {
  "requests", "success", "failed", "dropped", "good", "late_ttft", "slow_itl", "output_tokens",
  "spilled", "fallbacks", "cold", "deflected", "reasons",
}

local function result_of(counts, report, spec)
  local out = { unfinished = counts.cancelled, window_s = report.duration }
  for _, name in ipairs(COPIED) do out[name] = counts[name] end
  for _, name in ipairs({ "ttft", "itl", "itl_max", "e2el", "decided", "overhead" }) do
    out[name] = quantiles(counts[name])
  end
  out.goodput_per_s = ratio(out.good, out.window_s)
  out.throughput_per_s = ratio(out.success, out.window_s)
  if not counts.unread then
    for _, name in ipairs({ "prompt_tokens", "cached_tokens", "believed_tokens",
      "honoured_tokens" }) do
      out[name] = counts[name]
    end
    out.hit_rate = ratio(counts.cached_tokens, counts.prompt_tokens)
    out.honoured = ratio(counts.honoured_tokens, counts.believed_tokens)
    out.recomputed_per_request =
      ratio(counts.prompt_tokens - counts.cached_tokens, counts.success)
  end
  local most, least, all, members = busiest(counts)
  local replicas = spec.fleet.urls and #spec.fleet.urls or spec.fleet.replicas or members
  out.busiest_share = ratio(most, all)
  out.quietest_share = ratio(members < replicas and 0 or least, all)
  out.imbalance = ratio(most * replicas, all)
  out.placement = counts.replicas
  out.workload, out.backlog = report.workload, backlog(counts)
  out.profile = spec.fleet.profile
  return out
end

local function judge(out, seen, report, spec, found)
  local open = spec.workload.arrivals ~= "closed"
  for name, value in pairs({
    drift = seen:finish({
      open = open, turns = drift.turns_of(out.workload), backlog = out.backlog,
    }),
    late_p99_ms = report.lateness and report.lateness.p99_ms, driver = report.flags,
    cancelled = report.cancelled, time_scale = report.time_scale, wall_s = report.wall_s,
    cpu_share = report.cpu_share,
  }) do
    found[name] = value
  end
  found.flags = evidence.judge(out, found, open)
  out.evidence = found
end

local function keep_rows(where, path)
  if not path then return end
  -- May be another file system than that of the folder.
  local from = assert(io.open(where.folder .. "/driver.jsonl", "rb"))
  local to = store.draft(path)
  for bytes in function() return from:read(65536) end do to:write(bytes) end
  from:close()
  to:keep()
end

-- The evidence of what ran beside the load.
local function watched(job, where, run)
  local options = { own = {}, cards = job.spec.fleet.kind ~= "emulated" }
  for name, value in pairs(job.contamination or {}) do options[name] = value end
  if where.engines then table.insert(options.own, where.engines.pid) end
  local watch = contamination.start(options)
  local ok, report = pcall(run)
  local found = { contamination = watch:finish() }
  if not ok then error(report, 0) end
  found.ejections, found.out_of_rotation = where:health()
  found.script_failures = where:script_failures()
  found.engines_late_p99_ms = where:engines_late_ms()
  return report, found
end

---@param job {spec: table, texts: table<string, string>, rows: string?,
---  contamination: kvr.ContaminationOptions?}
---@param alive (fun())? to be called at least every few seconds
---@return table
function M.run(job, alive)
  local spec = job.spec
  if #spec.collect > 0 then fail("collectors see simulated requests alone") end
  ffi.simulator()
  local where = deployment.start(job, alive)
  local ok, out = xpcall(function()
    local report, found = watched(job, where, function() return drive(where, spec, alive) end)
    local trouble = where:stop_router()
    if trouble then fail("%s", trouble) end
    local counts, seen = count(where, spec.slo)
    local result = result_of(counts, report, spec)
    judge(result, seen, report, spec, found)
    keep_rows(where, job.rows)
    return result
  end, function(why) return type(why) == "table" and why or debug.traceback(tostring(why), 2) end)
  where:stop()
  if not ok then error(out, 0) end
  return out
end

return M
