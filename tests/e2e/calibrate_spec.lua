-- kvroute calibrate against an emulated engine whose constants are known: they come back.
local Emulator = require("e2e.support.emulator")
local process = require("e2e.support.process")

local truth = {
  step_floor_ms = 5, prefill_step_ms = 2, prefill_token_ms = 0.05, prefill_context_ms = 5e-6,
  decode_seq_ms = 0.3, decode_context_ms = 2e-4, overhead_ms = 12, jitter = 0.01,
}

local others = [[
name = "known"
bytes_per_token = 3
blocks = 6000
max_num_batched_tokens = 1024
max_num_seqs = 64
max_model_len = 6000
chat_head_tokens = 20
]]

local files = {}

local function new_file(ending)
  local name = os.tmpname()
  files[#files + 1] = name
  files[#files + 1] = name .. ending
  return name .. ending
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

-- Runs `kvroute calibrate`: exit code, stdout, stderr.
local function calibrate(...)
  local out, err = new_file(".out"), new_file(".err")
  local child = process.start({ Emulator.binary, "calibrate", ... }, { out = out, err = err })
  local _, code = child:wait(60)
  return code, read(out), read(err)
end

local function start(scale, ...)
  local path = new_file(".lua")
  local file = assert(io.open(path, "w"))
  file:write(others)
  for key, value in pairs(truth) do file:write(("%s = %.17g\n"):format(key, value)) end
  file:close()
  return Emulator.start({ args = { "--profile", path, "--time-scale", scale,
    "--prompt-tokens-details", "on", ... } })
end

-- The share by which each may be off.
local tolerance = { step_floor_ms = 0.05, prefill_token_ms = 0.03, decode_seq_ms = 0.1,
  decode_context_ms = 0.1, overhead_ms = 0.1 }

-- Which constant of the profile is not the truth; nil when all are.
local function wrong(found)
  if found.max_num_batched_tokens ~= 1024 then return "max_num_batched_tokens" end
  for key, share in pairs(tolerance) do
    if math.abs(found[key] / truth[key] - 1) > share then
      return ("%s is %g, was %g"):format(key, found[key], truth[key])
    end
  end
end

describe("kvroute calibrate", function()
  after_each(Emulator.finish)
  teardown(function()
    for _, name in ipairs(files) do os.remove(name) end
  end)

  it("finds an engine's constants again", function()
    local emulator = start(1)
    local found, profile, said
    -- A machine that holds the client up is no finding: it gets three tries.
    for _ = 1, 3 do
      profile = new_file(".lua")
      local code, out, err = calibrate(emulator.urls[1], "--max-prompt", "2048", "--max-batch", "8",
        "--name", "found", "--out", profile)
      assert.equal(0, code, err)
      assert.equal("", out)
      found = setmetatable({}, { __index = function() return 0 end })
      setfenv(assert(loadfile(profile)), found)()
      said = err
      if wrong(found) == nil then break end
    end
    assert.is_nil(wrong(found), said)
    assert.equal("found", found.name)
    assert.equal(6000, found.blocks)
    assert.equal(6000, found.max_model_len)
    assert.is_true(math.abs(found.bytes_per_token - 3) < 0.05)
    assert.is_true(math.abs(found.chat_head_tokens - 20) <= 2)
    assert.is_truthy(read(profile):find("-- known as timed from outside", 1, true))
    -- And it is one that an engine can be emulated by.
    Emulator.start({ args = { "--profile", profile } })
  end)

  it("does with what other engines tell", function()
    for _, flavour in ipairs({ "vllm", "sglang", "llamacpp" }) do
      local emulator = start(20, "--flavour", flavour, "--prompt-tokens-details", "off")
      local code, out, err = calibrate(emulator.urls[1], "--time-scale", "20", "--max-prompt",
        "1024", "--max-batch", "2", "--api", flavour == "sglang" and "completions" or "chat")
      assert.equal(0, code, err)
      assert.is_truthy(out:find("\nprefill_token_ms = ", 1, true), out)
      Emulator.finish()
    end
  end)

  it("says why it cannot", function()
    local emulator = start(20)
    local code, _, err = calibrate(emulator.urls[1] .. "/nowhere")
    assert.equal(1, code)
    assert.is_truthy(err:find("lists no models", 1, true), err)
    code, _, err = calibrate(emulator.urls[1], "--model", "another")
    assert.equal(1, code)
    assert.is_truthy(err:find("status 404", 1, true), err)
    code, _, err = calibrate("http://127.0.0.1:1")
    assert.equal(1, code)
    assert.is_truthy(err:find("connection refused", 1, true), err)
    code, _, err = calibrate()
    assert.equal(2, code)
    assert.is_truthy(err:find("whose URL?", 1, true), err)
  end)
end)
