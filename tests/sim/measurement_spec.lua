-- Mistakes that a study of this kind has made in measuring, each as a test that fails where it is
-- made again. Two more are arithmetic alone: the drift check (spec/lab/drift_spec.lua), and a
-- recovery's last bucket (spec/lab/recovery_spec.lua); redundant prefill is in spec/lab, too.
local ffi = require("kvroute.ffi")
local fleet = require("kvroute.fleet")
local metric = require("kvroute.metric")
local policy = require("kvroute.policy")
local results = require("kvroute.results")
local router = require("kvroute.router")
local simulate = require("kvroute.simulate")
local workload = require("kvroute.workload")

-- Of each decision: what its row says of the load of the replica it chose, and whether a user's
-- request went where the one before it had gone.
local collector = [[
return function()
  local out = { decisions = 0, idle = 0, most = 0, sum = 0, followed = 0, same = 0 }
  local last = {}
  return function(record)
    if record.replica == 65535 then return end
    out.decisions = out.decisions + 1
    out.sum = out.sum + record.in_flight
    out.most = math.max(out.most, record.in_flight)
    if record.in_flight == 0 then out.idle = out.idle + 1 end
    local user, turn = tonumber(record.user), record.turn
    local before = last[user]
    if before and before.turn == turn - 1 then
      out.followed = out.followed + 1
      if before.replica == record.replica then out.same = out.same + 1 end
    end
    last[user] = { turn = turn, replica = record.replica }
  end, function() return out end
end
]]

local function run(name, asked, seconds)
  local chosen, hash = policy.resolve(name), ffi.hash64(collector)
  local texts = { [hash] = collector }
  for each, text in pairs(chosen.texts) do texts[each] = text end
  return simulate.run({ texts = texts, spec = {
    fleet = fleet.simulated({ profile = "rtx3090-8b-awq", replicas = 5 }), router = router.study,
    workload = asked, measure = { seconds = seconds, warmup_s = 20 }, seed = 1,
    slo = { ttft_ms = 990, itl_ms = 24 }, policy = chosen.script, spill = chosen.spill,
    collect = { { name = "decisions", hash = hash } },
  } })
end

local function closed() return workload.kvroute({ users = 32, working_set = 1 }) end

describe("measuring", function()
  -- A ring that remembered its candidates, with their load, said 0 for as long as it lived.
  it("tells the load at the decision, under policies that look at none, too", function()
    for _, name in ipairs({ "session_affinity", "round_robin", "prefix_affinity" }) do
      local seen = run(name, closed(), 60).collected.decisions
      assert.is_true(seen.decisions > 300)
      -- 31 other requests are in flight on five replicas.
      assert.is_true(seen.sum / seen.decisions > 3, name)
      assert.is_true(seen.most >= 7, name)
      assert.is_true(seen.idle < 0.2 * seen.decisions, name)
    end
  end)

  -- Users that take turns in one fixed order, a multiple of the replicas, made round robin send
  -- each of them to the same replica for ever: a session affinity with another name.
  it("has no rhythm of users that round robin could fall into step with", function()
    local asked = workload.kvroute({ rate = 6, pool_s = 5, working_set = 1 })
    local seen = run("round_robin", asked, 300).collected.decisions
    assert.is_true(seen.followed > 1000)
    local share = seen.same / seen.followed
    assert.is_true(share > 0.15 and share < 0.25, ("%.2f"):format(share))
  end)

  -- In a closed loop the better policy gets more through, and so computes more in all.
  it("holds redundant prefill a request each", function()
    local chains, records = {}, {}
    for i, name in ipairs({ "round_robin", "prefix_affinity" }) do
      chains[i] = { { key = name, policy = name, at = {}, seed = 1, regime = "closed",
        spec = {} } }
      records[name] = { result = run(name, closed(), 100) }
    end
    local found = results.new("x", {}, chains, records)
    local plain, best = found.pools[1], found.pools[2]
    assert.is_true(best:value("requests") > 1.5 * plain:value("requests"))
    assert.equal(0, best:value("redundant"))
    local excess = plain:value("recomputed") - best:value("recomputed")
    assert.near(excess, plain:value("redundant"), 1e-9)
    assert.is_true(excess > 800)
    assert.equal("tokens", metric.find("redundant").unit)
  end)

  it("asks all policies for the same bytes", function()
    local a, b = run("round_robin", closed(), 30), run("prefix_affinity", closed(), 30)
    assert.equal(a.workload, b.workload)
    assert.truthy(a.workload:find("sessions(n=307,skew=0,turns=4,", 1, true))
  end)

  it("judges each cell by its drift", function()
    local asked = workload.kvroute({ users = 32, working_set = 1 })
    local result = run("prefix_affinity", asked, 200)
    assert.equal("turns", result.evidence.drift.basis)
    assert.equal(4, result.evidence.drift.turns_compared)
    assert.is_true(math.abs(result.evidence.drift.drift) < 0.25)
    assert.same({}, result.evidence.flags)
    -- 12 a second are too many for round robin: times grow for as long as it goes on.
    local open = run("round_robin", workload.kvroute({ rate = 12, working_set = 1 }), 200)
    assert.equal("past saturation", open.evidence.flags[1].name)
  end)
end)
