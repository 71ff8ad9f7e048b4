-- One model, two clocks: the emulated fleet behind real sockets, driven by kvroute load through
-- kvroute serve, against the simulator with the same workload, scripts, settings and ring.
--
-- Requests that come one at a time must be decided alike, all of them. With 32 users a live run is
-- one of the runs that the simulator has with other draws of its engines' jitter, and is held
-- against the median of these. KVR_FULL=1 runs all points of the study's working set 1 within the
-- bounds that count, else one point of it, shorter and within wider ones.
--
-- A live run on a machine that has other things to do measures these: it is repeated, and pending
-- where the machine never was calm. Calm: the engines' steps and the driver's requests were on time
-- to within 10 simulated milliseconds.
local bit = require("bit")
local Driver = require("e2e.support.driver")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local ffi = require("kvroute.ffi")
local study = require("sim.study")

local FULL = os.getenv("KVR_FULL") == "1"
local SCALE = tonumber(os.getenv("KVR_TIME_SCALE") or 20)
local REPLICAS, SEED, CALM_MS = 5, 1, 10
local TRIES = FULL and 5 or 2
local TTL_MS, NODES = 57000, 16311

local SCRIPTS = {
  { policy = "round_robin" }, { policy = "least_outstanding" }, { policy = "session_affinity" },
  { policy = "prefix_affinity", spill = "load_min" },
}

-- ---- live ----

---@param point {policy: string, spill: string?, ttl_ms: number, early: number, scale: number}
local function start_fleet(point)
  local emulator = Emulator.start({ replicas = REPLICAS, args = { "--profile", "rtx3090-8b-awq",
    "--time-scale", point.scale, "--seed", SEED, "--prompt-tokens-details", "zero",
    "--early-stops", point.early } })
  local fleet = Fleet.start({ replicas = emulator.urls, config = {
    policy = point.policy, spill = point.spill, seed = SEED,
    index = { ttl_ms = point.ttl_ms / point.scale, nodes = NODES },
    scrape = { interval_ms = math.max(10, 1000 / point.scale) },
  } })
  return fleet, emulator
end

-- The replicas end before the router does: it must not care.
local function finish()
  Driver.finish()
  local ok, why = pcall(Emulator.finish)
  Fleet.finish()
  if not ok then error(why, 0) end
end

-- How late the engines and the driver were, in simulated milliseconds.
local function lateness(emulator, report)
  local late_ms = report.lateness.p99_ms
  for _, each in ipairs(emulator:replicas()) do
    late_ms = math.max(late_ms, each.late_p99_us * 1e-3 * SCALE)
  end
  return late_ms
end

-- ---- simulated ----

-- The same deployment under virtual time. The ring is the live one: it is placed by addresses.
local function set(options, point, emulator)
  options.ring_seed, options.workload.seed = SEED, SEED
  options.authorities = table.concat(emulator.addresses, " ")
  options.health_ramp_ms = 0
  options.index_ttl_ms, options.workload.early_share = point.ttl_ms, point.early
end

local function load(sim, role, path)
  local failure = ffi.new("struct kvr_error")
  local code = ffi.simulator().kvr_sim_load(sim, role, path:match("[^/]*$"),
    Fleet.read("policies/" .. path .. ".lua"), nil, 0, failure)
  assert(code == 0, ffi.string(failure.text))
end

-- Which replica each request had, by the request's tag. `change` says what is asked.
local function simulate(point, emulator, count, change)
  local C, failure = ffi.simulator(), ffi.new("struct kvr_error")
  local options = ffi.new("struct kvr_sim_options")
  C.kvr_sim_defaults(options)
  set(options, point, emulator)
  options.seed, options.index_nodes, options.records = SEED, NODES, 1
  options.warmup_ms, options.duration_ms, options.requests = 0, 0, count
  change(options.workload)
  local sim = C.kvr_sim_create(options, failure)
  assert(sim ~= nil, ffi.string(failure.text))
  load(sim, "policy", point.policy)
  if point.spill then load(sim, "spill", "spill/" .. point.spill) end
  while C.kvr_sim_run(sim, -1ULL, 0) > 0 do end
  local chosen, first, len = {}, 0, ffi.new("uint32_t[1]")
  local records = C.kvr_sim_records(sim, first, len)
  while records ~= nil do
    for i = 0, len[0] - 1 do
      chosen[bit.tohex(records[i].tag)] = emulator.addresses[records[i].replica + 1]
    end
    first = first + len[0]
    records = C.kvr_sim_records(sim, first, len)
  end
  C.kvr_sim_destroy(sim)
  return chosen
end

-- How many of `count` requests went to the same replica live and simulated.
local function count_alike(point, count, arguments, change)
  local fleet, emulator = start_fleet(point)
  local all = { "-n", count, "--seed", SEED, "--time-scale", point.scale, unpack(arguments) }
  local report, rows = Driver.run("http://" .. fleet.address, all, { seconds = 120 })
  assert.equal(count, report.completed)
  local wanted, alike = simulate(point, emulator, count, change), 0
  for _, row in ipairs(rows) do
    assert.is_truthy(wanted[row.tag], "a request that was not simulated")
    if row.replica == wanted[row.tag] then alike = alike + 1 end
  end
  return alike
end

describe("requests that come one at a time", function()
  after_each(finish)

  for _, scripts in ipairs(SCRIPTS) do
    it("are all decided alike: " .. scripts.policy, function()
      local count = FULL and 1000 or 120
      local point = { policy = scripts.policy, spill = scripts.spill, ttl_ms = 1e9, early = 0,
        scale = 200 }
      assert.equal(count, count_alike(point, count, { "-u", "1" },
        function(workload) workload.users = 1 end))
    end)
  end
end)

-- At 6 requests a second answers overlap: what depends on who is done by then need not agree, what
-- depends on the order of arrivals or on the session must.
describe("requests that come when they are due", function()
  after_each(finish)

  local must = { round_robin = true, session_affinity = true }

  for _, scripts in ipairs(FULL and SCRIPTS or {}) do
    it("are decided alike as far as time is not in it: " .. scripts.policy, function()
      local count = 1000
      local point = { policy = scripts.policy, spill = scripts.spill, ttl_ms = TTL_MS, early = 0.2,
        scale = SCALE }
      local alike = count_alike(point, count, { "-r", "6" }, function(workload)
        workload.arrivals, workload.rate = 1, 6
      end)
      print(("%s, open loop: %d of %d requests decided alike"):format(scripts.policy, alike, count))
      if must[scripts.policy] then assert.equal(count, alike) end
    end)
  end
end)

describe("32 users", function()
  after_each(finish)

  local bounds = FULL and { goodput = 0.12, hit = 3, spill = 1 }
    or { goodput = 0.25, hit = 5, spill = 3 }
  local seconds, warmup_s = FULL and 300 or 150, 50

  -- Goodput a second, hit and spill rates in percent.
  local function live(fleet, skew)
    local report, rows = Driver.run("http://" .. fleet.address, { "-u", "32", "-d", seconds,
      "--warmup", warmup_s, "--time-scale", SCALE, "--seed", SEED, "-s", "skew=" .. skew,
      "--goodput", "ttft:990", "itl_p50:24" }, { seconds = 120 })
    assert.equal(0, report.failed)
    local spilled, measured = 0, 0
    for _, row in ipairs(rows) do
      if not row.warmup then
        measured = measured + 1
        if row.reason:find("^spill") then spilled = spilled + 1 end
      end
    end
    return report, {
      goodput = report.good / (seconds - warmup_s), hit = 100 * report.cached_share,
      spill = 100 * spilled / measured,
    }
  end

  local function simulated(point, emulator, skew)
    local m = study.medians(point, 5, function(options)
      set(options, point, emulator)
      options.workload.skew = skew
      options.warmup_ms, options.duration_ms = warmup_s * 1000, seconds * 1000
    end)
    return { goodput = m.goodput, hit = m.hit_rate, spill = m.spill_rate }
  end

  -- Runs until the machine was calm; nil when it never was.
  local function calm_run(point, skew)
    local late_ms
    for _ = 1, TRIES do
      local fleet, emulator = start_fleet(point)
      local report, found = live(fleet, skew)
      late_ms = lateness(emulator, report)
      if late_ms < CALM_MS then return found, emulator end
      finish()
    end
    return nil, late_ms
  end

  local function compare(scripts, skew)
    local point = { policy = scripts.policy, spill = scripts.spill, ttl_ms = TTL_MS, early = 0.2,
      scale = SCALE }
    local got, emulator = calm_run(point, skew)
    if not got then
      pending(("the machine was never calm: late by %.0f simulated ms"):format(emulator))
      return
    end
    local want = simulated(point, emulator, skew)
    local said = ("%s at skew %g: goodput %.2f live, %.2f simulated; hit %.1f %%, %.1f %%; spill "
      .. "%.2f %%, %.2f %%"):format(scripts.policy, skew, got.goodput, want.goodput, got.hit,
      want.hit, got.spill, want.spill)
    if FULL then print(said) end
    assert.is_true(math.abs(got.goodput - want.goodput) <= bounds.goodput * want.goodput, said)
    assert.is_true(math.abs(got.hit - want.hit) <= bounds.hit, said)
    assert.is_true(math.abs(got.spill - want.spill) <= bounds.spill, said)
  end

  for _, scripts in ipairs(SCRIPTS) do
    for _, skew in ipairs({ 0, 1.4 }) do
      if FULL or (scripts.policy == "prefix_affinity" and skew == 0) then
        it(("do as well as simulated: %s, skew %g"):format(scripts.policy, skew), function()
          compare(scripts, skew)
        end)
      end
    end
  end
end)
