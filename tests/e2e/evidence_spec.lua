-- What is known of a cell that ran in real time, beside its figures; and the floor of real engines.
local cjson = require("cjson")
local emulator = require("e2e.support.process")
local lab = require("sim.laboratory")

local EXPERIMENT = [[
local lab = require("kvroute")
return lab.experiment {
  name = "live", fleet = lab.fleet.emulated { profile = "simple", replicas = 2, time_scale = 4 },
  workload = lab.workload.kvroute { users = 4, sessions = 20 }, policies = { "round_robin" },
  measure = { seconds = 8, warmup_s = 2 }, slo = { ttft_ms = 990 }, seeds = 1,
}
]]

-- Long lines of what was printed go on below, further in.
local function unfolded(text) return (text:gsub("\n     +", " ")) end

describe("evidence of a live cell", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  local function run(...)
    local path = lab.write(folder .. "/live.lua", EXPERIMENT)
    local cells = folder .. "/cells"
    local code, out, err = lab.run(folder, path, "--rows", "--out", cells, ...)
    assert.equal(0, code, err)
    for name, text in pairs(lab.files(cells)) do
      if name:find("%x%.json$") then return cjson.decode(text).result, unfolded(out), cells end
    end
  end

  local function flagged(result, name)
    for _, flag in ipairs(result.evidence.flags) do
      if flag.name == name then return true end
    end
    return false
  end

  it("has the driver's lateness, the router's ejections, and says that nobody looked", function()
    local result, _, cells = run()
    local found = result.evidence
    assert.equal("number", type(found.late_p99_ms))
    assert.equal(0, found.ejections)
    assert.same({}, found.out_of_rotation)
    assert.equal("not looked for", found.contamination.state)
    assert.truthy(found.contamination.why:find("no command was given", 1, true))
    assert.is_false(flagged(result, "unclean"))
    local placed = 0
    for _, requests in pairs(result.placement) do placed = placed + requests end
    assert.equal(result.requests, placed)
    -- The driver's rows give the same figures.
    local pipe = assert(io.popen(("%s rescore %s"):format(lab.binary, cells)))
    local said = pipe:read("*a")
    pipe:close()
    local all_is_well = "1 cells: 0 change, 0 have no rows, 0 are not reproduced"
    assert.truthy(said:find(all_is_well, 1, true), said)
  end)

  it("says what a command has found, or that it found nothing", function()
    local result, out = run("--contamination", "echo 1, a stranger")
    assert.equal("found", result.evidence.contamination.state)
    assert.is_true(flagged(result, "unclean"))
    assert.truthy(out:find("unclean (beside us: 1, a stranger)", 1, true), out)
    result = run("--contamination", "true", "--fresh")
    assert.equal("clean", result.evidence.contamination.state)
    assert.is_true(result.evidence.contamination.looks >= 1)
    assert.is_false(flagged(result, "unclean"))
  end)
end)

describe("a live cell whose engine dies", function()
  it("is excluded: the router took it out, and misses it at the end", function()
    local folder = lab.new_folder()
    local engines = {}
    finally(function()
      for _, engine in ipairs(engines) do engine:kill() end
      lab.remove_folder(folder)
    end)
    local urls = {}
    for i = 1, 2 do
      engines[i] = emulator.start({ lab.binary, "replica", "--port", "0",
        "--prompt-tokens-details", "zero" }, { out = folder .. "/out" .. i,
        err = folder .. "/err" .. i })
      urls[i] = ('"http://%s"'):format(engines[i]:wait_line("replica 0 (%S+)\n", 10))
    end
    local path = lab.write(folder .. "/live.lua", (EXPERIMENT:gsub("lab.fleet.emulated %b{}",
      "lab.fleet.urls { urls = { " .. table.concat(urls, ", ") .. " } }")))
    -- The command that looks begins with the load, so it knows when to kill.
    local kill = ("test -e %s/dead || { sleep 2; kill -9 %d; touch %s/dead; }"):format(folder,
      engines[2].pid, folder)
    local code, out, err = lab.run(folder, path, "--out", folder .. "/cells", "--contamination",
      kill)
    assert.equal(0, code, err)
    out = unfolded(out)
    assert.truthy(out:find("ejections (1 replicas were taken out)", 1, true), out)
    assert.truthy(out:find("out of rotation (127.0.0.1:", 1, true), out)
    assert.truthy(out:find("round_robin (0 of 1)", 1, true), out)
  end)
end)

describe("kvroute floor", function()
  it("asks each engine by itself, and takes all together", function()
    local folder = lab.new_folder()
    local engines = emulator.start({ lab.binary, "fleet", "--replicas", "2", "--port", "0",
      "--prompt-tokens-details", "zero" }, { out = folder .. "/out", err = folder .. "/err" })
    finally(function()
      engines:kill()
      lab.remove_folder(folder)
    end)
    local a = engines:wait_line("replica 0 (%S+)\n", 10)
    local b = engines:wait_line("replica 1 (%S+)\n", 10)
    local pipe = assert(io.popen(("%s floor http://%s http://%s --requests 10 --json 2>&1"):format(
      lab.binary, a, b)))
    local said = pipe:read("*a")
    pipe:close()
    local found = cjson.decode(said)
    assert.equal(20, found.all.requests)
    assert.equal(2, #found.replicas)
    assert.is_true(found.slo.ttft_ms >= 3 * found.all.ttft_p50_ms - 1e-6)
    assert.is_true(found.slo.ttft_ms < 3 * found.all.ttft_p50_ms + 5)
    assert.is_true(found.all.cached_tokens < 0.05 * found.all.prompt_tokens)
  end)
end)
