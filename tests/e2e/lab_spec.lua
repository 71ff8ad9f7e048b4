-- kvroute run in real time: emulated engines, router and load driver as processes, against the same
-- cells in the simulator.
local cjson = require("cjson")
local lab = require("sim.laboratory")
local emulator = require("e2e.support.process")

describe("kvroute run, live", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  local FILE = [[
    local lab = require("kvroute")
    local set = lab.settings { fleet = "simulated", url = "", policy = "prefix_affinity" }
    local fleets = {
      simulated = function()
        return lab.fleet.simulated { profile = "simple", replicas = 3 }
      end,
      emulated = function()
        return lab.fleet.emulated { profile = "simple", replicas = 3, time_scale = 4 }
      end,
      urls = function() return lab.fleet.urls { urls = { set.url } } end,
    }
    return lab.experiment {
      name = "live",
      fleet = fleets[set.fleet](),
      router = lab.router.study,
      workload = lab.workload.kvroute { users = 4, sessions = 20 },
      policies = { set.policy },
      measure = { seconds = 8, warmup_s = 2 },
      slo = { ttft_ms = 200, itl_ms = 20 },
      seeds = 1,
      ignore = { "cold opening", "fleet slowed", "partial visits", "late", "engines late", "busy" },
    }
  ]]

  local text
  local function run(...)
    local path = lab.write(folder .. "/live.lua", text or FILE)
    local code, _, err = lab.run(folder, path, "--out", folder .. "/cells", "--results", folder,
      ...)
    if code ~= 0 then return code, err end
    return code, cjson.decode(lab.read(folder .. "/live.json")).pools[1].repetitions[1]
  end

  it("gives what the simulator gives, field by field", function()
    local _, simulated = run()
    local code, live = run("--fleet", "emulated")
    assert.equal(0, code, live)
    live, simulated = live.result, simulated.result
    for _, name in ipairs({ "requests", "success", "good", "goodput_per_s", "prompt_tokens",
      "cached_tokens", "hit_rate", "output_tokens", "spilled", "cold", "busiest_share", "imbalance",
      "honoured", "window_s", "fallbacks", "late_ttft", "slow_itl" }) do
      assert.equal("number", type(live[name]), name)
    end
    for _, name in ipairs({ "ttft", "itl", "e2el" }) do
      for _, p in ipairs({ "p50", "p90", "p99", "mean", "max" }) do
        assert.equal("number", type(live[name][p]), name .. p)
      end
    end
    assert.equal(0, live.failed + live.dropped + live.unfinished)
    assert.equal(0, live.fallbacks)
    assert.equal(live.requests, live.success)
    local near = function(name, share)
      assert.is_true(math.abs(live[name] - simulated[name]) <= share * simulated[name],
        ("%s: live %g, simulated %g"):format(name, live[name], simulated[name]))
    end
    near("window_s", 0.1)
    near("hit_rate", 0.1)
    -- The machine may be busy, which only slows the live one.
    assert.is_true(live.throughput_per_s < 1.2 * simulated.throughput_per_s)
  end)

  it("takes a working set for what the simulator takes it for", function()
    text = FILE:gsub("sessions = 20", "working_set = 0.5")
    finally(function() text = nil end)
    local _, simulated = run("--set", "fleet=simulated")
    local code, live = run("--set", "fleet=emulated")
    assert.equal(0, code, live)
    assert.equal(simulated.result.workload:match("n=%d+"), live.result.workload:match("n=%d+"))
  end)

  it("drives engines that run already", function()
    local engines = emulator.start({
      lab.binary, "replica", "--port", "0", "--prompt-tokens-details", "zero",
    }, { out = folder .. "/engine.out", err = folder .. "/engine.err" })
    local address = engines:wait_line("replica 0 (%S+)\n", 10)
    local code, live = run("--fleet", "urls", "--set", "url=http://" .. address,
      "--policy", "round_robin")
    engines:kill()
    assert.equal(0, code, live)
    assert.is_true(live.result.success > 10)
    assert.equal(live.result.success, live.result.reasons.round_robin)
    assert.equal(1, live.result.busiest_share)
  end)

  it("says why a cell could not be run, and leaves nothing behind", function()
    local code, err = run("--fleet", "urls", "--set", "url=http://127.0.0.1:1")
    assert.equal(1, code)
    assert.is_truthy(err:find("failed: prefix_affinity, seed 1", 1, true), err)
    assert.is_truthy(err:find("no engine answers the router", 1, true), err)
  end)
end)
