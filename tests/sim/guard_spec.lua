-- The live guard of a gate under virtual time: traffic turns to what the gate never saw, and the
-- baseline takes over, within one window, with no failed request.
local ffi = require("kvroute.ffi")
local json = require("kvroute.json")

local WINDOW_S, FLIP_S, END_S, RATE = 5, 30, 60, 40

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

local function raised(failure) error(ffi.string(failure.text)) end

local function load(sim, role, name)
  local failure = ffi.new("struct kvr_error")
  local text = read("policies/" .. name .. ".lua")
  if ffi.simulator().kvr_sim_load(sim, role, name, text, nil, 0, failure) ~= 0 then
    raised(failure)
  end
end

-- `row_at(i, after)` changes the i-th request; `after`: the workload has flipped.
local function create(row_at)
  local C, failure = ffi.simulator(), ffi.new("struct kvr_error")
  local options = ffi.new("struct kvr_sim_options")
  C.kvr_sim_defaults(options)
  assert(C.kvr_sim_use_profile(options, "h100-8b-bf16") == 0)
  options.replicas, options.rows, options.slo_ttft_ms = 4, 1, 1000
  options.workload.kind, options.workload.arrivals = 2, 2
  options.warmup_ms, options.duration_ms, options.drain_ms = 0, 0, 600000
  local sim = C.kvr_sim_create(options, failure)
  if sim == nil then raised(failure) end
  local reader = C.kvr_trace_create(C.kvr_sim_workload(sim))
  for i = 0, END_S * RATE - 1 do
    local row = { at_ms = i * 1000 / RATE, input_tokens = 400, output_tokens = 20,
      tenant = "t" .. i % 8 }
    row_at(row, i >= FLIP_S * RATE, i)
    local line = json.encode(row) .. "\n"
    if C.kvr_trace_feed(reader, line, #line, failure) ~= 0 then raised(failure) end
  end
  C.kvr_trace_destroy(reader)
  load(sim, "policy", "session_affinity")
  load(sim, "baseline", "p2c")
  return ffi.gc(sim, C.kvr_sim_destroy)
end

local function take_rows(sim, into)
  local C, len = ffi.simulator(), ffi.new("size_t[1]")
  local bytes = C.kvr_sim_rows(sim, len)
  for line in (len[0] > 0 and ffi.string(bytes, len[0]) or ""):gmatch("[^\n]+") do
    into[#into + 1] = json.decode(line)
  end
  C.kvr_sim_take_rows(sim, len[0])
end

local function run_until(sim, at_s, rows)
  ffi.simulator().kvr_sim_run(sim, at_s and at_s * 1000000000ULL or -1ULL, 0)
  take_rows(sim, rows)
end

-- An envelope around the keys that came so far.
local function gate(sim, rows)
  local keys, seen = json.list({}), {}
  for _, row in ipairs(rows) do
    if not seen[row.routing_key] then keys[#keys + 1] = json.list({ row.routing_key, 1 }) end
    seen[row.routing_key] = true
  end
  local text = json.encode({ format = "kvroute-gate-2", verdict = "enable",
    candidate = { name = "session_affinity", hash = ("0"):rep(16), params_hash = ("1"):rep(16),
      spill = json.null }, against = { name = "p2c" },
    bounds = { active_share = 0.8, ttft_p99_ms = 1000, token_ms = 40 }, keys = keys })
  local failure = ffi.new("struct kvr_error")
  if ffi.simulator().kvr_sim_gate(sim, text, #text, WINDOW_S * 1000, 50, failure) ~= 0 then
    raised(failure)
  end
end

local function run(row_at)
  local C, sim, rows, state = ffi.simulator(), create(row_at), {}, ffi.new("struct kvr_sim_gate")
  run_until(sim, 10, rows)
  gate(sim, rows)
  run_until(sim, FLIP_S, rows)
  assert.equal("kept", ffi.string(C.kvr_sim_gate_state(sim, state)))
  run_until(sim, nil, rows)
  local left = ffi.string(C.kvr_sim_gate_state(sim, state))
  local result = ffi.new("struct kvr_sim_result")
  C.kvr_sim_result(sim, result)
  assert.equal(END_S * RATE, result.success)
  assert.equal(0, result.failed + result.dropped + result.unfinished)
  assert.equal(END_S * RATE, #rows)
  return left, state, rows
end

-- Who decided, by the rows: the candidate until the guard acts, then the baseline.
local function check_rows(rows, reason, left_s)
  for _, row in ipairs(rows) do
    local fallen = row.started_ms / 1000 > left_s
    if math.abs(row.started_ms / 1000 - left_s) > 0.1 then
      assert.equal(fallen and "p2c" or "session_affinity", row.policy.name)
      assert.equal(fallen and reason or nil, row.baseline)
    end
  end
end

describe("the guard of a gate", function()
  it("sees that other keys come", function()
    local left, state, rows = run(function(row, after, i)
      if after then row.tenant = "other" .. i % 8 end
    end)
    assert.equal("active_set", left)
    assert.is_true(state.left_s > FLIP_S and state.left_s <= FLIP_S + WINDOW_S, state.left_s)
    assert.is_true(state.active < 0.8 * state.requests)
    check_rows(rows, "active_set", state.left_s)
    assert.is_true(state.decisions > 0.7 * RATE * (END_S - FLIP_S))
  end)

  it("sees that first tokens are late", function()
    local left, state, rows = run(function(row, after)
      if after then row.input_tokens = 12000 end -- four such take over a second each
    end)
    assert.equal("ttft_p99", left)
    assert.is_true(state.left_s > FLIP_S and state.left_s <= FLIP_S + WINDOW_S, state.left_s)
    assert.is_true(state.late * 100 > state.answers)
    check_rows(rows, "ttft_p99", state.left_s)
  end)

  it("keeps still while traffic is what it was", function()
    local left, state = run(function() end)
    assert.equal("kept", left)
    assert.is_true(state.left_s ~= state.left_s)
    assert.equal(0, state.decisions)
  end)
end)
