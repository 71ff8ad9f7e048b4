-- A plan where replicas serve different models: keys of two models are two keys, and each goes only
-- to replicas that serve its model. The replicas are emulated engines: a serves red, b red and
-- blue, c blue.
local cjson = require("cjson")
local Command = require("e2e.support.command")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")

local DONE, REFUSED = Command.DONE, Command.REFUSED
local kvroute, has = Command.run, Command.has

local SERVED = { { "red" }, { "red", "blue" }, { "blue" } }

-- The emulated replicas end before the router does: it must not care.
local function finish()
  local ok, why = pcall(Emulator.finish)
  Fleet.finish()
  if not ok then error(why, 0) end
end

-- The fleet, and the names of a, b and c.
local function start(plan)
  local urls, names = {}, {}
  for i, models in ipairs(SERVED) do
    local args = { "--time-scale", "50" }
    for _, model in ipairs(models) do
      args[#args + 1] = "--served-model-name"
      args[#args + 1] = model
    end
    local engine = Emulator.start({ args = args })
    urls[i], names[i] = engine.urls[1], engine.addresses[1]
  end
  return Fleet.start({ replicas = urls, config = {
    policy = "cacheroute", routing = { by = "key", key = "shard" }, plan = plan or { slots = 10 },
  } }), names
end

-- Requests of a shard for a model; the replica and the reason of the last.
local function ask(fleet, model, shard, times)
  local answer
  for _ = 1, times or 1 do
    answer = fleet:chat("Hello", { model = model, max_tokens = 1 }, { "Shard: " .. shard })
    assert.equal(200, answer.status)
  end
  return answer:header("x-kvroute-replica"), answer:header("x-kvroute-reason")
end

-- Four keys, by falling rate: a of red, a of blue, b of blue, c of red.
local function ask_all(fleet)
  ask(fleet, "red", "a", 8)
  ask(fleet, "blue", "a", 6)
  ask(fleet, "blue", "b", 4)
  ask(fleet, "red", "c", 1)
end

-- What the plan should come to: each to the least loaded that serves its model.
local function assert_planned(fleet, names)
  local a, b, c = names[1], names[2], names[3]
  for _ = 1, 3 do
    assert.same({ a, "planned" }, { ask(fleet, "red", "a") })
    assert.same({ b, "planned" }, { ask(fleet, "blue", "a") })
    assert.same({ c, "planned" }, { ask(fleet, "blue", "b") })
    assert.same({ b, "planned" }, { ask(fleet, "red", "c") })
  end
  assert.equal("unplanned", select(2, ask(fleet, "red", "b")))
end

-- No request went where its model is not served, by plan or otherwise.
local function assert_served(fleet, names, count)
  local serves = {}
  for i, models in ipairs(SERVED) do
    serves[names[i]] = {}
    for _, model in ipairs(models) do serves[names[i]][model] = true end
  end
  local planned = 0
  for _, row in ipairs(fleet:rows(count)) do
    assert.is_true(serves[row.replica][row.model], row.model .. " at " .. row.replica)
    planned = planned + (row.reason == "planned" and 1 or 0)
  end
  return planned
end

describe("a plan of two models", function()
  after_each(finish)

  it("places a routing key under each where that is served, and shows it", function()
    local fleet, names = start()
    ask_all(fleet)
    local state = fleet:admin("/admin/plan/now", {})
    assert.same({ 4, 4, 4 }, { state.plan.keys, state.plan.admitted, state.plan.copies })
    table.sort(state.plan.models, function(x, y) return x.model > y.model end)
    assert.same({ { model = "red", keys = 2, copies = 2, destinations = 2 },
      { model = "blue", keys = 2, copies = 2, destinations = 2 } }, state.plan.models)
    assert_planned(fleet, names)
    assert.equal(12, assert_served(fleet, names, 19 + 13))
    local out = Command.shows(fleet, "plan")
    has(out, "4 of 4 keys, with 100.0 % of the rate")
    assert.truthy(out:find("\n +MODEL +KEYS +COPIES +REPLICAS\n"), out)
    for _, model in ipairs({ "red", "blue" }) do
      assert.truthy(out:find("\n +" .. model .. " +2 +2 +2\n"), out)
    end
    -- Under either model an explanation has the key's own place.
    for model, place in pairs({ red = names[1], blue = names[2] }) do
      local explained = fleet:admin("/admin/explain", { headers = { Shard = "a" },
        body = cjson.decode(Fleet.chat("Hello", { model = model })) })
      assert.same({ 1, place, "planned" }, { explained.view.planned, explained.replica,
        explained.reason })
    end
  end)

  it("keeps each key where it is, and follows a replica that serves another", function()
    local fleet, names = start({ slots = 10, keep = true })
    ask_all(fleet)
    fleet:admin("/admin/plan/now", {})
    ask_all(fleet)
    local state = fleet:admin("/admin/plan/now", {})
    assert.equal("same", state.last.result)
    -- a now serves blue alone: red has b, and what was there stays.
    fleet:admin("/admin/replicas/remove", { replica = names[1] })
    fleet:admin("/admin/replicas", { url = "http://" .. names[1], models = { "blue" } })
    fleet:wait_ready()
    state = fleet:admin("/admin/plan/now", {})
    assert.same({ "installed", 3, 1 }, { state.last.result, state.last.change.kept,
      state.last.change.removed })
    assert.same({ names[2], "planned" }, { ask(fleet, "red", "a") })
    assert.same({ names[2], "planned" }, { ask(fleet, "red", "c") })
    assert.same({ names[3], "planned" }, { ask(fleet, "blue", "b") })
  end)

  it("is a file that names them, made of rows and checked against what is served", function()
    local fleet, names = start()
    ask_all(fleet)
    fleet:rows(19)
    local path = fleet.folder .. "/plan.csv"
    local argv = { "plan", "--rows", fleet.folder .. "/rows.jsonl", "--slots", "10", "--out", path }
    for i, models in ipairs(SERVED) do
      argv[#argv + 1] = "--to=" .. names[i]
      for _, model in ipairs(models) do
        argv[#argv + 1] = "--serves=" .. names[i] .. "=" .. model
      end
    end
    local code, _, err = kvroute(fleet, unpack(argv))
    assert.same({ DONE, "" }, { code, err })
    local text = Fleet.read(path)
    has(text, "# kvroute plan 2, 4 keys\nkey,model,rate,destinations\n")
    Command.shows(fleet, "plan", "load", path)
    assert_planned(fleet, names)
    assert_served(fleet, names, 19 + 13)
    local wrong = fleet.folder .. "/wrong.csv"
    Fleet.write(wrong, "# kvroute plan 2, 1 key\nkey,model,rate,destinations\na,blue,1,"
      .. names[1] .. "\n")
    code, _, err = kvroute(fleet, "ctl", "plan", "load", wrong)
    assert.equal(REFUSED, code)
    has(err, ('%s: line 3: destinations serve the model of the key, not "%s"'):format(wrong,
      names[1]))
    -- Without models a key is placed for all of them, each where that is served.
    Fleet.write(wrong, ("# kvroute plan 2, 1 key\nkey,rate,destinations\na,1,%s %s\n"):format(
      names[1], names[3]))
    Command.shows(fleet, "plan", "load", wrong)
    for _ = 1, 3 do
      assert.same({ names[1], "planned" }, { ask(fleet, "red", "a") })
      assert.same({ names[3], "planned" }, { ask(fleet, "blue", "a") })
    end
  end)
end)
