-- kvroute gate on traffic recorded by experiments/gate.lua, at a fifth of its size and three seeds.
local import = require("kvroute.import")
local json = require("kvroute.json")
local lab = require("sim.laboratory")

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

describe("kvroute gate", function()
  local folder
  setup(function() folder = lab.new_folder() end)
  teardown(function() lab.remove_folder(folder) end)

  local recorded = {}
  local function rows_of(case)
    if recorded[case] then return recorded[case] end
    local cells = folder .. "/" .. case
    local code, _, err = lab.run(folder, "experiments/gate.lua", "--set", "case=" .. case, "--set",
      "share=0.2", "--rows", "--out", cells)
    assert.equal(0, code, err)
    for name in pairs(lab.files(cells)) do
      if name:find("rows%.jsonl$") then recorded[case] = cells .. "/" .. name end
    end
    return recorded[case]
  end

  local function gate(...)
    local words = { quote(lab.binary), "gate" }
    for _, word in ipairs({ ... }) do words[#words + 1] = quote(word) end
    local out, err = folder .. "/stdout", folder .. "/stderr"
    local status = os.execute(("%s --seeds 3 --replicas 6 --cells %s/cells >%s 2>%s"):format(
      table.concat(words, " "), folder, out, err))
    return math.floor(status / 256), lab.read(out), lab.read(err)
  end

  local SEVENTY = { "--profile", "h100x2-70b-fp8" }

  it("says enable where prompts share much, and writes the envelope", function()
    local envelope = folder .. "/gate.json"
    local code, out, err = gate("--rows", rows_of("70b"), "--candidate", "cacheroute", "--slots",
      "5", "--out", envelope, unpack(SEVENTY))
    assert.equal(0, code, out .. err)
    assert.truthy(out:find("^enable: p99 is lower near the knee: %-"), out)
    for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
    local made = json.decode(lab.read(envelope))
    assert.equal("enable", made.verdict)
    assert.equal("cacheroute", made.candidate.name)
    assert.equal(16, #made.candidate.hash)
    assert.equal(16, #made.candidate.params_hash)
    assert.equal(json.null, made.candidate.spill)
    assert.equal("p2c", made.against.name)
    assert.is_nil(made.best_of)
    -- What near the knee a token costs of these engines, whose steps take some tens of ms.
    assert.is_true(made.bounds.token_ms > 20 and made.bounds.token_ms < 1000)
    assert.equal(made.bounds.token_ms, math.max(made.loads[2].against.token_ms,
      made.loads[2].candidate.token_ms))
    assert.equal(3500, made.bounds.ttft_p99_ms)
    assert.equal(26, #made.keys)
    assert.is_true(made.keys[1][2] > made.keys[26][2])
    assert.near(0.8 * made.known_share, made.bounds.active_share, 1e-9)
    assert.equal("near", made.loads[2].name)
    assert.is_true(made.loads[2].differences.hit.least > 0.15)
    assert.is_true(made.loads[2].differences.p99.most < -0.3)
    -- From the same rows the same bytes, whether cells are there already or not.
    local again = folder .. "/again.json"
    gate("--rows", rows_of("70b"), "--candidate", "cacheroute", "--slots", "5", "--out", again,
      unpack(SEVENTY))
    assert.equal(lab.read(envelope), lab.read(again))
  end)

  it("says keep where little is shared, though the hit rate rises", function()
    local code, out, err = gate("--rows", rows_of("32b"), "--candidate", "cacheroute", "--slots",
      "20", "--profile", "h100x2-32b-bf16")
    assert.equal(3, code, out .. err)
    assert.truthy(out:find("^keep: "), out)
    assert.truthy(out:find("points of hit rate alone are no reason", 1, true), out)
  end)

  it("says keep of a policy against itself", function()
    local code, out, err = gate("--rows", rows_of("70b"), "--candidate", "p2c", "--json",
      unpack(SEVENTY))
    assert.equal(3, code, err)
    local made = json.decode(out)
    assert.equal("keep", made.verdict)
    assert.truthy(made.reason:find("tie within spread", 1, true), made.reason)
    for _, load in ipairs(made.loads) do
      for _, difference in pairs(load.differences) do assert.equal(0, difference.sign) end
    end
  end)

  it("takes the best reactive policy as the baseline, by the rows themselves", function()
    local copy = folder .. "/policies"
    os.execute(("mkdir %s && cp -r policies/spill %s"):format(copy, copy))
    for _, name in ipairs({ "cacheroute", "llmd_sticky", "p2c", "round_robin", "types" }) do
      lab.write(("%s/%s.lua"):format(copy, name), lab.read(("policies/%s.lua"):format(name)))
    end
    lab.write(copy .. "/mine.lua", "this is no Lua")
    local code, out, err = gate("--rows", rows_of("70b"), "--candidate", "cacheroute", "--slots",
      "5", "--policies", copy, "--baseline", "best", "--json", unpack(SEVENTY))
    local made = json.decode(out)
    -- One destination of each key is warmer than two choices of all, so the harder question has
    -- another answer.
    assert.same({ 3, "keep" }, { code, made.verdict })
    assert.equal("llmd_sticky", made.against.name)
    assert.same({ "llmd_sticky", "p2c", "round_robin" }, made.best_of.policies)
    assert.same({ "llmd_sticky" }, made.best_of.at_knee)
    assert.truthy(err:find("mine is left out: ", 1, true), err)
    assert.truthy(err:find("3 of 3 reactive policies within the limits", 1, true), err)
    assert.truthy(err:find("the baseline is llmd_sticky", 1, true), err)
    code, out, err = gate("--rows", rows_of("70b"), "--candidate", "llmd_sticky", "--policies",
      copy, "--baseline", "best", unpack(SEVENTY))
    assert.equal(0, code, out .. err)
    assert.truthy(out:find("The baseline is the best of 2 reactive policies", 1, true), out)
  end)

  -- The same requests, recorded by a router with wide blocks and by one without.
  it("takes rows of wide blocks, which share what they say they do", function()
    local function record(name, setting)
      local path = lab.write(("%s/%s.lua"):format(folder, name), ([[
local lab = require("kvroute")
return lab.experiment { name = "wide", fleet = lab.fleet.simulated { profile = "h100-8b-bf16" },
  router = { row_blocks = true%s }, workload = lab.workload.keys { keys = 6, rate = 4, gap_cv = 1,
    template_tokens = 700, context_tokens = 300, variant_tokens = 200, unique_tokens = 100 },
  policies = { "p2c" }, measure = { warmup_requests = 0, requests = 400, drain_s = 30 },
  slo = { ttft_ms = 3500 }, seeds = 1 }
]]):format(setting))
      local cells = folder .. "/" .. name
      local code, _, err = lab.run(folder, path, "--rows", "--out", cells)
      assert.equal(0, code, err)
      for file in pairs(lab.files(cells)) do
        if file:find("rows%.jsonl$") then return cells .. "/" .. file end
      end
    end
    -- Of each request: how many of its leading blocks came before.
    local function known(path)
      local seen, out = {}, {}
      for row in import.rows("router", path) do
        local count, on = 0, true
        for _, run in ipairs(row.blocks) do
          for id = run[1], run[1] + run[2] - 1 do
            on = on and seen[id]
            count = count + (on and 1 or 0)
            seen[id] = true
          end
        end
        out[#out + 1] = count
      end
      return out
    end
    local plain, wide_rows = record("plain", ""), record("wide", ", index_wide_after = 2000")
    local a, b = known(plain), known(wide_rows)
    assert.equal(400, #b)
    local less = 0
    for i = 1, #a do
      -- A quarter of a wide block that is shared is not known of.
      assert.is_true(b[i] <= a[i] and a[i] - b[i] < 4, ("%d: %d and %d"):format(i, a[i], b[i]))
      less = less + a[i] - b[i]
    end
    assert.is_true(less > 0)
    local code, out, err = gate("--rows", wide_rows, "--candidate", "prefix_affinity", "--profile",
      "h100-8b-bf16", "--slo-ttft", "1000", "--json")
    assert.is_true(code == 0 or code == 3, err)
    assert.equal(400, json.decode(out).rows.requests)
  end)

  it("measures what one destination carries of the keys it would have", function()
    local out = folder .. "/q_cap.json"
    local status = os.execute(("%s plan --calibrate --rows %s --profile h100x2-70b-fp8 --slots 5 "
      .. "--json --cells %s/cells >%s 2>/dev/null"):format(quote(lab.binary),
      quote(rows_of("70b")), folder, out))
    assert.equal(0, status)
    local made = json.decode(lab.read(out))
    -- A thirtieth of what thirty of them carry, 180 a second (Table 1), and no skew between them.
    assert.is_true(made.q_cap > 5 and made.q_cap < 9, made.q_cap)
    assert.is_true(made.above > made.q_cap and made.above < 1.13 * made.q_cap)
  end)

  it("says what it misses", function()
    local function fails(code, words, ...)
      local got, out, err = gate(...)
      assert.equal(code, got, out .. err)
      assert.truthy(err:find(words, 1, true), err)
    end
    local rows = rows_of("32b")
    fails(1, "cacheroute needs a plan: give --slots", "--rows", rows, "--candidate", "cacheroute",
      unpack(SEVENTY))
    fails(2, "--against-param is for a baseline by name", "--rows", rows, "--candidate", "p2c",
      "--baseline", "best", "--against-param", "a=1", unpack(SEVENTY))
    fails(2, "--judged is a share", "--rows", rows, "--candidate", "p2c", "--judged", "2",
      unpack(SEVENTY))
    fails(1, "there is no script nosuch", "--rows", rows, "--candidate", "nosuch", unpack(SEVENTY))
    local short = lab.write(folder .. "/short.jsonl", lab.read(rows):match("[^\n]+\n"))
    fails(1, "1 rows, of which 1 would be judged; 100 are needed", "--rows", short, "--candidate",
      "p2c", unpack(SEVENTY))
    local bare = lab.write(folder .. "/bare.jsonl", (lab.read(short):gsub(',"chain".*', "}\n")))
    fails(1, "bare.jsonl:1: chain: is missing: the router needs rows.blocks = true", "--rows", bare,
      "--candidate", "p2c", unpack(SEVENTY))
  end)
end)
