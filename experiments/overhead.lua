-- Question  What does the router itself add to a request, policy by policy?
-- Method    Live: `kvroute serve` before five light emulated replicas, conversations of the study
--           at a fixed rate, so that all policies have the same to do. What the router's rows say:
--           from the poll that brought a request's last byte to the decision, and to the write to
--           the replica. Router, replicas and load share the machine, and these figures differ from
--           run to run and from machine to machine: policies take turns, and of each its calmest
--           window stands, with the least p99. The driver's lateness says how calm that was.
-- Seed      1 to 3, a window each
-- Run       kvroute run experiments/overhead.lua --fresh --results experiments/results/overhead
-- Takes     4 minutes; nothing else may use the machine
local lab = require("kvroute")

local set = lab.settings { rate = 100, seconds = 12, replicas = 5 }

-- As the study published them: p50 and p99 in us. Prefix affinity is from another run there, in
-- which a replica was killed.
local study = {
  round_robin = { 221, 507 }, least_outstanding = { 217, 431 }, session_affinity = { 223, 787 },
  prefix_affinity = { 383, 822 },
}

local function cores()
  local count = 0
  for line in io.lines("/proc/cpuinfo") do
    if line:find("^processor%s") then count = count + 1 end
  end
  return count
end

---@return table? # result of the window with the least p99
local function calmest(pool)
  local best
  for _, result in ipairs(pool.results) do
    if not best or result.overhead.p99 < best.overhead.p99 then best = result end
  end
  return best
end

local function us(ms) return ("%.0f"):format(1000 * ms) end

local function between(pool, name)
  local least, most = pool:range(name)
  return ("%.0f-%.0f"):format(least, most)
end

local function report(found)
  local rows = {}
  for _, pool in ipairs(found.pools) do
    local best, there = calmest(pool), study[pool.policy] or {}
    rows[#rows + 1] = best and {
      pool.policy, us(best.overhead.p50), us(best.overhead.p99), us(best.decided.p50),
      us(best.decided.p99), between(pool, "overhead_p50_us"), between(pool, "overhead_p99_us"),
      ("%.1f"):format(best.evidence.late_p99_ms),
      there[1] and ("%d, %d"):format(unpack(there)),
    } or { pool.policy }
  end
  return lab.table.text({
    title = ("in the router, us: %g requests a second for %g s, on %d cores"):format(set.rate,
      set.seconds, cores()),
    head = {
      "policy", "written\np50", "\np99", "decided\np50", "\np99", "all windows\np50", "\np99",
      "driver late\np99 ms", "the study\np50, p99",
    },
    rows = rows,
    notes = { "until the choice is made, and until the request is written to the replica; of the "
      .. "calmest window" },
  })
end

local function figure(found)
  local series = {}
  for i, pool in ipairs(found.pools) do
    local best, values = calmest(pool), {}
    for j, p in ipairs({ "p50", "p99" }) do
      local least, most = pool:range(("overhead_%s_us"):format(p))
      values[j] = best and { y = 1000 * best.overhead[p], low = least, high = most } or false
    end
    series[i] = { name = pool.policy, values = values }
  end
  return {
    kind = "rows", title = "Router overhead of a request, live",
    note = ("%g requests a second; the calmest window, lines: all windows"):format(set.rate),
    groups = { "p50", "p99" }, x = { label = "from the last byte read to the write on (us)" },
    series = series,
  }
end

return lab.experiment {
  name = "overhead",
  question = "what does the router itself add to a request?",
  fleet = lab.fleet.emulated { profile = "simple", replicas = set.replicas },
  router = lab.router.study,
  workload = lab.workload.kvroute { working_set = 1, skew = 0, rate = set.rate },
  policies = {
    "round_robin", "p2c", "least_outstanding", "session_affinity", "bounded_session_affinity",
    "prefix_hash", "prefix_affinity",
  },
  measure = { seconds = set.seconds, warmup_s = set.seconds / 6 },
  slo = { ttft_ms = 990, itl_ms = 24 },
  seeds = 3,
  -- They speak of the engines, and of a driver that has a core to itself.
  ignore = { "cold opening", "fleet slowed", "partial visits", "fractional visit periods", "busy",
    "engines late" },
  report = report,
  figures = function(found) return { router = figure(found) } end,
}
