-- What the experiments of CacheRoute must keep to, on parts of them: figures of a whole run are in
-- experiments/README.md. Bands are of independent implementations, and nothing was tuned to them.
local lab = require("sim.laboratory")
local study = require("sim.study")

local function keys(profile, rate, change)
  return function(options)
    assert(require("kvroute.ffi").simulator().kvr_sim_use_profile(options, profile) == 0)
    options.workload.kind, options.workload.arrivals = 1, 1
    options.workload.rate, options.workload.gap_cv = rate, 1
    options.warmup_ms, options.duration_ms = 0, 0
    options.warmup_requests, options.requests = 16000, 3000
    options.drain_ms, options.timeout_ms = 30000, 30000
    options.slo_ttft_ms, options.index_nodes, options.ring_vnodes = 3500, 0, 4
    if change then change(options) end
  end
end

local function planned(options) options.plan_slots, options.plan_at_start = 5, 1 end

-- Lines of an experiment's first table by their first word or words: all that stands in them,
-- without what the paper has.
local function lines(folder, name, ...)
  local code, out, err = lab.run(folder, ("experiments/%s.lua"):format(name), "--out",
    folder .. "/cells", "--seeds", "1", ...)
  assert.equal(0, code, err)
  local found = {}
  for line in out:gmatch("[^\n]+") do
    assert.is_true(#line <= 100, line)
    local first, rest = line:match("^(.-)  +(.*)$")
    if first and not found[first] then
      found[first] = {}
      rest = rest:gsub("%b[]", "")
      for value in rest:gmatch("[^%s%%x]+") do table.insert(found[first], value) end
    end
  end
  return found, out
end

describe("CacheRoute", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("has reactive policies between the ring and the plan (B-1, B-2)", function()
    local function run(policy, rate, change)
      return study.run({ policy = policy }, keys("h100x2-70b-fp8", rate, change))
    end
    local dualmap, preble = run("dualmap", 100), run("preble_cap", 100)
    study.within(100 * dualmap.hit_rate, 84, 93, "hit rate of DualMap")
    study.within(100 * preble.hit_rate, 64, 84, "hit rate of Preble with a cap")
    assert.is_true(run("cacheroute", 160, planned).ttft_p99_all < 3500)
    assert.is_true(run("preble_cap", 160).ttft_p99_all > 3500)
    assert.is_true(run("dualmap", 220).ttft_p99_all > 3500)
  end)

  it("has DualMap find by its openings what routing keys tell, and others by their own", function()
    local function hit(policy)
      return 100 * study.run(policy, keys("h100x2-70b-fp8", 100)).hit_rate
    end
    local two_choices = hit({ policy = "p2c" })
    study.within(hit({ policy = "dualmap", params = { key = "opening" } }), 84, 93, "DualMap")
    assert.is_true(hit({ policy = "preble_e2" }) > two_choices + 15)
    assert.is_true(hit({ policy = "min_ttft" }) > two_choices + 5)
  end)

  it("carries all that the ladder has on 8B engines, with few keys and with many (B-3)", function()
    for _, count in ipairs({ 16, 128 }) do
      local function active(options)
        options.workload.keys = count
        planned(options)
      end
      local run = study.run({ policy = "cacheroute" }, keys("h100-8b-bf16", 500, active))
      assert.is_true(run.ttft_p99_all < 3500, count)
    end
    assert.is_true(study.run({ policy = "p2c" }, keys("h100-8b-bf16", 360)).ttft_p99_all > 3500)
  end)

  it("owes its balance to placement by load, not to copies (B-3)", function()
    local found, out = lines(folder, "cacheroute_table4", "--set", "rates=240,360")
    local function imbalance(name) return tonumber(found[name][2]) end
    local function knee(name) return tonumber((found[name][3]:gsub("[<+]", ""))) end
    assert.is_true(imbalance("+ affinity") >= 2.7 and imbalance("+ LPT") <= 1.3, out)
    assert.is_true(imbalance("+ replication") < imbalance("+ affinity"), out)
    assert.is_true(imbalance("+ replication") > imbalance("+ LPT"), out)
    assert.is_true(knee("+ LPT") >= 1.5 * knee("Flat-LB"), out)
    assert.is_true(knee("+ affinity") <= knee("Flat-LB"), out)
  end)

  it("loses where little of the prompt is the key's, and wins where much is (B-4)", function()
    local found, out = lines(folder, "cacheroute_regimes", "--set", "regimes=32B A,32B flipped")
    local function number(text) return tonumber((text:gsub("[<+]", ""))) end
    local lose, win = found["32B A"], found["32B flipped"]
    study.within(number(lose[2]) - number(lose[1]), 5, 12, "points of hit rate")
    study.within(number(lose[4]) / number(lose[3]), 0.45, 0.9, "capacity of the plan over flat")
    assert.is_true(number(win[4]) >= 2 * number(win[3]), out)
  end)

  it("raises p99 where little of the prompt is the key's, and lowers it where much is", function()
    local found, out = lines(folder, "cacheroute_boundary", "--set", "shares=0.05,0.9",
      "--set", "rates=60")
    local little, much = found["0.05"], found["0.9"]
    assert.is_true(tonumber(little[2]) > tonumber(little[1]) + 1, out) -- points of hit rate
    assert.is_true(tonumber(much[2]) > tonumber(much[1]) + 50, out)
    assert.is_true(tonumber(little[8]) > 1.1, out) -- p99 over that of two choices
    assert.is_true(tonumber(much[8]) < 0.8, out)
  end)

  it("has cold caches behind a new plan, and little to lose by an old one (B-5)", function()
    local found = lines(folder, "cacheroute_drift", "--set", "rates=200")
    local seed = found["200/s, seed 2"]
    study.within(tonumber(seed[1]), 85, 100, "keys that a plan from scratch moves, in percent")
    study.within(tonumber(seed[2]), -1.5, 1.5, "points of hit rate that a stale plan loses")
    study.within(tonumber(seed[6]), 8, 30, "points of hit rate lost over the next 5,000 requests")
  end)
end)
