-- What the router asks of its replicas by itself: health, models, and every metrics page of
-- tests/data/metrics, read at an interval.
local cjson = require("cjson")
local dirent = require("posix.dirent")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local FOLDER = "tests/data/metrics/"

local function names()
  local found = {}
  for name in dirent.files(FOLDER) do found[#found + 1] = name:match("^(.*)%.prom$") end
  table.sort(found)
  return found
end

local function start(metrics, settings)
  return Fleet.start({
    replicas = { { script = Replica.answers(), metrics = metrics, settings = settings } },
    config = { scrape = { interval_ms = 50 } },
  })
end

-- What the engine reports, as the router has read it.
local function engine(fleet)
  local state = fleet:replica_state(fleet.replicas[1].name)
  return state.engine ~= cjson.null and state.engine or nil
end

local function wait_engine(fleet, condition)
  return loop.wait(function()
    local told = engine(fleet)
    return told and condition(told) and told
  end, 3, "the engine's signals")
end

describe("an engine's metrics page", function()
  after_each(Fleet.finish)

  it("is there of each kind", function()
    assert.is_true(#names() >= 4)
  end)

  for _, name in ipairs(names()) do
    it(name .. " is read as it is meant", function()
      local expected = cjson.decode(Fleet.read(FOLDER .. name .. ".expect.json"))
      local fleet = start(Fleet.read(FOLDER .. name .. ".prom"))
      local told = wait_engine(fleet, function() return true end)
      assert.equal(expected.running, told.running)
      assert.equal(expected.waiting, told.waiting)
      assert.equal(expected.kv_usage, told.kv_usage)
      assert.is_true(told.age_ms < 1000)
    end)
  end

  it("that cannot be read leaves what was read, with its age", function()
    local fleet = start('vllm:num_requests_running{model_name="m"} 7\n')
    wait_engine(fleet, function(told) return told.running == 7 end)
    fleet.replicas[1].metrics = nil
    local told = wait_engine(fleet, function(each) return each.age_ms > 300 end)
    assert.equal(7, told.running)
    assert.equal(cjson.null, told.waiting) -- unknown is not zero
    fleet.replicas[1].metrics = 'vllm:num_requests_running{model_name="m"} 3\n'
    told = wait_engine(fleet, function(each) return each.running == 3 end)
    assert.is_true(told.age_ms < 300)
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("that was never read is no signal", function()
    local fleet = start("nothing of it is a sample\n")
    loop.wait(function() return (fleet.replicas[1].asked["/metrics"] or 0) >= 3 end)
    assert.is_nil(engine(fleet))
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("tells of a restart: what the replica held is forgotten", function()
    local page = "process_start_time_seconds %d\nvllm:num_requests_running 0\n"
    local fleet = start(page:format(1700000000))
    wait_engine(fleet, function() return true end)
    fleet:chat(("A prompt that fills some blocks. "):rep(20))
    assert.is_true(fleet:replica_state(fleet.replicas[1].name).index_blocks > 5)
    fleet.replicas[1].metrics = page:format(1700000100)
    loop.wait(function()
      return fleet:replica_state(fleet.replicas[1].name).index_blocks == 0
    end, 2, "the beliefs to go")
    local answer = fleet:chat(("A prompt that fills some blocks. "):rep(20))
    assert.equal("cold", answer:header("x-kvroute-reason"))
  end)
end)

describe("what the router asks by itself", function()
  after_each(Fleet.finish)

  it("carries the replica's host and key", function()
    local fleet = start(nil, { key = "replica-secret" })
    local replica = fleet.replicas[1]
    loop.wait(function() return replica.asked["/metrics"] end)
    for _, path in ipairs({ "/health", "/v1/models", "/metrics" }) do
      local request = replica.asked_by[path]
      assert.equal(replica.name, request:header("host"), path)
      assert.equal("Bearer replica-secret", request:header("authorization"), path)
    end
  end)

  it("keeps to its intervals", function()
    local fleet = Fleet.start({ config = {
      health = { interval_ms = 200 }, scrape = { interval_ms = 100 }, models = { refresh_ms = 400 },
    } })
    local asked = fleet.replicas[1].asked
    loop.wait(function() return asked["/metrics"] end)
    local health, metrics, models = asked["/health"], asked["/metrics"], asked["/v1/models"]
    loop.sleep(2)
    local function between(count, low, high)
      assert.is_true(count >= low and count <= high, count .. " times")
    end
    between(asked["/health"] - health, 7, 11)
    between(asked["/metrics"] - metrics, 14, 22)
    between(asked["/v1/models"] - models, 3, 6)
  end)

  it("notices a model that comes and one that goes", function()
    local fleet = Fleet.start({
      script = Replica.answers(), config = { models = { refresh_ms = 100 } },
    })
    assert.equal(404, fleet:chat("Hello", { model = "adapter" }).status)
    fleet.replicas[1].models = { "adapter" }
    loop.wait(function() return fleet:chat("Hello", { model = "adapter" }).status == 200 end, 2)
    loop.wait(function() return fleet:chat("Hello").status == 404 end, 2)
    assert.equal("adapter", fleet:request({ path = "/v1/models" }):json().data[1].id)
  end)

  it("can be other paths, and need not be", function()
    local fleet = Fleet.start({ config = { scrape = { enabled = false } } })
    loop.sleep(0.3)
    assert.is_nil(fleet.replicas[1].asked["/metrics"])
    local other = Fleet.start({ ready = false, config = { health = { path = "/v1/models" } } })
    loop.wait(function() return (other.replicas[1].asked["/v1/models"] or 0) >= 2 end, 2)
    other:wait_ready()
    assert.is_nil(other.replicas[1].asked["/health"])
  end)
end)
