-- Recorded traces in the simulator: the shipped replay, and one replica that forgets nothing
-- against what the rows themselves say.
local cjson = require("cjson")
local import = require("kvroute.import")
local lab = require("sim.laboratory")

local MOONCAKE = "experiments/data/mooncake-conversation/conversation_trace.first.jsonl.gz"
local AGENTIC = "experiments/data/kv-cache-tester-agentic/sessions.odd.jsonl.gz"

-- Share of prompt tokens in leading blocks that were seen before: a run is named by its first id.
local function endless(format, file, options)
  local longest, held, all, count = {}, 0, 0, 0
  for row in import.rows(format, file, options) do
    local leading = true
    for _, run in ipairs(row.blocks) do
      local known = longest[run[1]] or 0
      if leading then held = held + row.block_tokens * math.min(known, run[2]) end
      leading = leading and known >= run[2]
      longest[run[1]] = math.max(known, run[2])
    end
    all, count = all + row.input_tokens, count + 1
  end
  return held / all, count
end

local EXPERIMENT = [[
local lab = require("kvroute")
return lab.experiment {
  name = "replay",
  fleet = lab.fleet.simulated { profile = "h100-8b-bf16", replicas = 1,
    profile_set = { blocks = 1500000, max_model_len = 1000000 } },
  workload = lab.workload.trace { %s },
  policies = { "round_robin" },
  measure = { requests = %d, drain_s = 36000 },
  slo = {},
  seeds = 1,
}
]]

describe("a recorded trace", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  -- The result of the one cell of an experiment with that workload.
  local function replay(workload, requests)
    local path = lab.write(folder .. "/replay.lua", EXPERIMENT:format(workload, requests))
    local code, _, err = lab.run(folder, path, "--out", folder .. "/cells", "--results",
      folder .. "/results")
    assert.is_true(code == 0 or err:find("cells run, 0 failed", 1, true) ~= nil, err)
    local pools = cjson.decode(lab.read(folder .. "/results/replay.json")).pools
    assert.equal(1, #pools)
    return pools[1].repetitions[1].result
  end

  it("hits in one endless cache what its ids say, in open loop", function()
    local options = { limit = 1200 }
    local expected, count = endless("mooncake", MOONCAKE, options)
    local result = replay(([[format = "mooncake", files = "%s", import = { limit = 1200 },
      time_scale = 3]]):format(MOONCAKE), count)
    assert.equal(count, result.success)
    -- Partial blocks, the chat template and what is asked at one instant make the difference.
    assert.is_true(math.abs(result.hit_rate - expected) < .01,
      ("%.4f simulated, %.4f by ids"):format(result.hit_rate, expected))
  end)

  it("hits in one endless cache what its ids say, in sessions that wait", function()
    local options = { limit = 250, max_think_ms = 1000 }
    local expected, count = endless("agentic", AGENTIC, options)
    local result = replay(([[format = "agentic", files = "%s", closed = true,
      import = { limit = 250, max_think_ms = 1000 }]]):format(AGENTIC), count)
    assert.equal(count, result.success)
    assert.is_true(math.abs(result.hit_rate - expected) < .01,
      ("%.4f simulated, %.4f by ids"):format(result.hit_rate, expected))
  end)

  it("is another cell when its bytes are others", function()
    local rows = {}
    for i = 1, 30 do
      rows[i] = ('{"at_ms":%d,"input_tokens":100,"output_tokens":2}\n'):format(100 * i)
    end
    local path = lab.write(folder .. "/rows.jsonl", table.concat(rows))
    local workload = ('files = "%s"'):format(path)
    assert.equal(30, replay(workload, 30).success)
    lab.write(path, table.concat(rows, "", 1, 29))
    assert.equal(29, replay(workload, 30).success)
    lab.write(path, "{}\n")
    local file = lab.write(folder .. "/replay.lua", EXPERIMENT:format(workload, 30))
    local code, _, err = lab.run(folder, file, "--out", folder .. "/cells")
    assert.equal(1, code)
    assert.is_truthy(err:find(path .. ":1: input_tokens: is missing", 1, true), err)
    assert.is_nil(err:find("traceback", 1, true), err)
  end)

  it("fails the cells that would see another text than they are known by", function()
    local path = lab.write(folder .. "/rows.jsonl",
      ('{"at_ms":0,"input_tokens":100,"output_tokens":2}\n'):rep(20))
    local file = lab.write(folder .. "/replay.lua", EXPERIMENT:format(
      ('files = "%s"'):format(path), 20))
    -- What is read last of an experiment: here somebody saves the trace.
    lab.write(file, (lab.read(file):gsub("return lab.experiment {", ([[
      local function change()
        local file = io.open(%q, "a")
        file:write("\n\n")
        file:close()
      end
      return lab.experiment { slo = function() change() return { ttft_ms = 1000 } end, ]]):format(
      path)):gsub("\n  slo = [^\n]*", "")))
    local code, _, err = lab.run(folder, file, "--out", folder .. "/cells")
    assert.equal(1, code, err)
    assert.is_truthy(err:find("rows.jsonl: has changed since the run began", 1, true), err)
    assert.is_nil(err:find("traceback", 1, true), err)
  end)

  it("ships as an experiment, in which knowing prefixes doubles what is cached", function()
    local code, _, err = lab.run(folder, "experiments/replay_mooncake.lua", "--seeds", "1", "--out",
      folder .. "/cells", "--results", folder .. "/results")
    assert.is_true(code == 0 or err:find("3 cells run, 0 failed", 1, true) ~= nil, err)
    local hit = {}
    local found = cjson.decode(lab.read(folder .. "/results/replay_mooncake.json"))
    for _, pool in ipairs(found.pools) do
      local result = pool.repetitions[1].result
      assert.equal(0, result.failed + result.dropped + result.script_errors + result.fallbacks)
      assert.is_true(result.success > 4900)
      hit[pool.policy] = result.hit_rate
    end
    assert.is_true(hit.prefix_affinity > 2 * hit.round_robin)
    assert.is_true(hit.prefix_affinity < .3465)
  end)
end)
