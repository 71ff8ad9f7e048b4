-- q_cap of a running engine: `kvroute plan --calibrate URL`, against an emulated one over sockets.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local process = require("e2e.support.process")

local folder, engine

-- One replica that serves `sequences` at once.
local function start_engine(sequences)
  engine = process.start({ Fleet.binary, "replica", "--profile", "simple", "--port", "0",
    "--max-num-seqs", tostring(sequences) },
    { out = folder .. "/engine.out", err = folder .. "/engine.err" })
  return "http://" .. engine:wait_line("replica 0 (%S+)\n", 10)
end

local function calibrate(...)
  local run = process.start({ Fleet.binary, "plan", "--calibrate", ... },
    { out = folder .. "/out", err = folder .. "/err" })
  local how, code = run:wait(120)
  assert.equal("exited", how)
  return code, run:stdout(), run:stderr()
end

-- Short prompts; an answer of 16 tokens takes 16 steps of about 2 ms.
local SMALL = { "--slots", "2", "--load=--set=template_tokens=100",
  "--load=--set=context_tokens=50", "--load=--set=variants=1", "--load=--set=variant_tokens=10",
  "--load=--set=unique_tokens=10", "--load=--set=output_tokens=16" }

describe("kvroute plan --calibrate URL", function()
  before_each(function() folder = Fleet.new_folder() end)
  after_each(function()
    if engine then engine:kill() end
    engine = nil
    Fleet.remove_folder(folder)
    process.kill_all()
  end)

  it("climbs until the engine is over the limit, and closes in on the knee", function()
    -- One at a time: no more than 1 / 32 ms = 31 a second.
    local code, out, err = calibrate(start_engine(1), "--slo-ttft", "400", "--seconds", "1",
      "--requests", "80", "--rate-from", "8", "--json", unpack(SMALL))
    assert.equal(0, code, err)
    local knee = cjson.decode(out)
    assert.is_true(knee.q_cap >= 8 and knee.q_cap < 60, "q_cap " .. knee.q_cap)
    assert.is_true(knee.above > knee.q_cap and knee.above <= 1.1 * knee.q_cap + 1e-9)
    assert.is_true(#knee.rungs >= 3 and #knee.rungs <= 16)
    for i, rung in ipairs(knee.rungs) do
      assert.is_true(i == 1 or rung.rate > knee.rungs[i - 1].rate)
      assert.is_true(rung.sent >= 1 and rung.sent <= 80)
      assert.equal(rung.passes, rung.p99_ms <= 400 and rung.failed <= 0.05 * rung.sent)
    end
  end)

  it("says where the ladder ended, and not the load", function()
    local url = start_engine(64)
    local code, out, err = calibrate(url, "--slo-ttft", "10000", "--seconds", "1", "--rate-from",
      "4", "--rate-to", "6", unpack(SMALL))
    assert.equal(0, code, err)
    assert.truthy(out:find(url .. ", 2 keys: p99 of the first token within 10000 ms", 1, true), out)
    assert.truthy(out:find("q_cap is 6 requests a second or more", 1, true), out)
    assert.truthy(err:find("4/s: p99 ", 1, true), err)
  end)

  it("finds no q_cap where the lowest rate is over the limit", function()
    local code, out = calibrate(start_engine(64), "--slo-ttft", "0.001", "--seconds", "1",
      "--rate-from", "4", unpack(SMALL))
    assert.equal(1, code)
    assert.truthy(out:find("no q_cap: 4 requests a second are over the limits", 1, true), out)
  end)

  it("says what is wrong", function()
    local url = "http://127.0.0.1:1"
    local code, _, err = calibrate(url, "--slots", "2", "--seconds", "1")
    assert.equal(1, code)
    assert.truthy(err:find("127.0.0.1:1", 1, true), err)
    for _, words in ipairs({ {}, { "--slots", "1.5" }, { "--slots", "2", "--seconds", "0" },
      { "--slots", "2", "--rate-from", "5", "--rate-to", "4" } }) do
      assert.equal(2, (calibrate(url, unpack(words))))
    end
  end)
end)
