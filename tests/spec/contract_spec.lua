-- What holds for every file in policies/ and policies/spill/, whatever its rule.

local lfs = require("lfs")
local fleet = require("spec.support.fleet")
local lab = require("spec.support.lab")
local random_view = require("spec.support.random_view")

local VIEWS = 10000
local MAX_LINES = 80
local MAX_HEAP_GROWTH = 4096 -- bytes over 10,000 picks

-- Params under which a file is tried besides its defaults.
local variants = {
  session_affinity = { { mode = "hrw" } },
  bounded_session_affinity = {
    { mode = "haproxy" }, { mode = "envoy" }, { mode = "kubeai", eps = 0.01 }, { min_cap = 4 },
  },
  prefix_hash = { { window = 1, weight = 0 } },
  prefix_affinity = { { by = "load" } },
  lmetric = { { class_blocks = 0 } },
  dynamo_cost = { { temperature = 0.5, request_tokens = 100 } },
  cache_aware = { { mode = "window", abs = 2 } },
  preble_e2 = { { steal = 0 } },
  dualmap = { { key = "opening" } },
  load_min = { { factor = 1 } },
  load_mean = { { factor = 1 } },
  tokens = { { seconds = 0 } },
  hit_rate = { { low_water = 0.5, factor = 1 } },
}

-- Those shipped have an opinion whenever a replica is available. A new one need not.
local shipped = {}
for _, name in ipairs {
  "round_robin", "least_outstanding", "p2c", "session_affinity", "bounded_session_affinity",
  "prefix_hash", "prefix_affinity", "cacheroute", "preble_cap",
  "lmetric", "smetric", "llmd_sticky", "dynamo_cost", "cache_aware",
  "dualmap", "min_ttft", "preble_e2",
  "off", "load_min", "load_mean", "tokens", "hit_rate",
} do
  shipped[name] = true
end

local function scripts_in(folder)
  local names = {}
  for file in lfs.dir(folder) do
    local name = file:match("^(.*)%.lua$")
    if name and name ~= "types" then names[#names + 1] = name end
  end
  table.sort(names)
  return names
end

local scripts = {}
for _, name in ipairs(scripts_in("policies")) do
  scripts[#scripts + 1] =
    { name = name, path = "policies/" .. name .. ".lua", make = fleet.policy }
end
for _, name in ipairs(scripts_in("policies/spill")) do
  scripts[#scripts + 1] =
    { name = name, path = "policies/spill/" .. name .. ".lua", make = fleet.spill, spills = true }
end

-- What the script says of the view that f sees: a policy's pick, or the spill of an available row.
local function decide(script, f, count)
  if not script.spills then return f:pick() end
  local preferred = f:nth_available(math.random(0, count))
  if preferred then return f:spill(preferred) end
end

-- Bytes that 10,000 calls take from the script's heap. A collection in between gives some back, so
-- only growth from one call to the next counts.
local function allocated_by(f, call)
  local allocated, before = 0, f:memory()
  for _ = 1, 10000 do
    call()
    local now = f:memory()
    if now > before then allocated = allocated + (now - before) end
    before = now
  end
  return allocated
end

local function each_variant(script, body)
  local list = { {} }
  for _, params in ipairs(variants[script.name] or {}) do
    list[#list + 1] = params
  end
  for _, params in ipairs(list) do
    body(params)
  end
end

describe("every script", function()
  it("is found", function()
    assert.is_true(#scripts >= 12)
  end)

  for _, script in ipairs(scripts) do
    describe(script.path, function()
      it("fits one screen, loops in bounds, and is called what its file is", function()
        local text = lab.read(script.path)
        assert.is_true(select(2, text:gsub("\n", "")) <= MAX_LINES)
        local code = text:gsub("%-%-[^\n]*", ""):gsub('"[^"\n]*"', '""')
        for word in code:gmatch("[%a_]+") do
          assert.is_nil(({ ["while"] = 1, ["repeat"] = 1, ["goto"] = 1, pairs = 1 })[word], word)
        end
        local f = assert(script.make(script.name))
        assert.equal(script.name, f:script_name())
      end)

      it("decides for an available replica or not at all, on 10,000 random views", function()
        each_variant(script, function(params)
          math.randomseed(20260919)
          local f = assert(script.make(script.name, params))
          local decided = 0
          for _ = 1, VIEWS do
            local count = random_view(f, fleet.MAX_ROWS)
            local index, reason = decide(script, f, count)
            if index then
              decided = decided + 1
              assert.is_true(index >= 0 and index < count)
              assert.is_true(f:is_available(index))
              if not script.spills then assert.matches("^[a-z0-9_]+$", reason) end
            else
              assert.is_nil(reason, reason)
              if shipped[script.name] then
                assert.is_nil(f:nth_available(0), "no opinion though a replica is available")
              end
            end
          end
          local counters = f:counters()
          assert.equal(0, tonumber(counters.errors))
          assert.equal(0, tonumber(counters.bad_results))
          assert.is_true(decided > VIEWS / 2 or not shipped[script.name])
        end)
      end)

      it("answers the same from the same seed", function()
        each_variant(script, function(params)
          local f = assert(script.make(script.name, params, 99))
          local twin = assert(script.make(script.name, params, 99))
          for n = 1, 1000 do
            math.randomseed(n)
            local count = random_view(f, fleet.MAX_ROWS)
            local a, a_reason, a_affine = decide(script, f, count)
            math.randomseed(n)
            random_view(twin, fleet.MAX_ROWS)
            local b, b_reason, b_affine = decide(script, twin, count)
            assert.equal(a, b)
            assert.equal(a_reason, b_reason)
            assert.equal(a_affine, b_affine)
          end
        end)
      end)

      it("allocates nothing", function()
        each_variant(script, function(params)
          math.randomseed(4)
          local f = assert(script.make(script.name, params))
          local allocated
          for _ = 1, 8 do -- until the compiler has seen the branches: its traces are garbage too
            allocated = allocated_by(f, function()
              decide(script, f, random_view(f, fleet.MAX_ROWS))
            end)
            if allocated < MAX_HEAP_GROWTH then return end
          end
          error(("%d bytes in 10,000 picks, %s"):format(allocated, f:params()))
        end)
      end)

      if not script.spills then
        it("sends an idle fleet's traffic everywhere", function()
          each_variant(script, function(params)
            local f = assert(script.make(script.name, params))
            f:see({}, { {}, {}, {}, {}, {} })
            local counts = f:spread(5000)
            for i = 0, 4 do -- exactly even by rotation, within 4 standard deviations by chance
              assert.is_true(math.abs(counts[i] - 1000) < 120, i .. ": " .. counts[i])
            end
          end)
        end)
      end
    end)
  end
end)

-- A test that cannot fail is none: the harness must see what it forbids.
describe("the contract's own tests", function()
  it("see one table a pick", function()
    local f = assert(fleet.policy_text("garbage", [[
      local keep
      return { api = 1, name = "garbage", pick = function(request, view)
        keep = { request.serial }
        return kvr.least(), "x"
      end }]]))
    f:see({}, { {}, {} })
    local allocated = allocated_by(f, function() f:pick() end)
    assert.is_true(allocated > 40 * 10000, allocated)
  end)

  it("see an unavailable index", function()
    local f = assert(fleet.policy_text("first", [[
      return { api = 1, name = "first", pick = function(request, view)
        if request.serial == 7 then return 0, "first" end
        return kvr.least(), "first"
      end }]]))
    f:see({ serial = 7 }, { { available = false }, {} })
    local index, why = f:pick()
    assert.is_nil(index)
    assert.is_string(why)
    assert.equal(1, tonumber(f:counters().bad_results))
  end)
end)
