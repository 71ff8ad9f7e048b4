-- The admin interface of a router with traffic: what a command does to streams that are open, and
-- what the answers, the rows and the metrics page say of it.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local Replica = require("e2e.support.replica")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")

local function count_samples(fleet)
  local page = fleet:metrics_page()
  local count = 0
  for line in page:gmatch("[^\n]+") do
    if line:sub(1, 1) ~= "#" then count = count + 1 end
  end
  return count, #page
end

local function command(fleet, path, body)
  return fleet:admin_answer("/admin/" .. path, cjson.encode(body))
end

local function error_of(answer)
  return cjson.decode(answer:body()).error
end

local function begin_stream(fleet, replica)
  local client, exchange = fleet:begin_stream(replica)
  return { client = client, exchange = exchange }
end

local function end_stream(stream)
  stream.exchange:event("last")
  stream.exchange:finish()
  local answer = stream.client:finish()
  assert.equal(200, answer.status)
  assert.truthy(answer:body():find("last", 1, true))
end

describe("the fleet at run time", function()
  after_each(Fleet.finish)

  it("gives a draining replica nothing new and lets its streams end", function()
    local fleet = Fleet.start({ replicas = 2, config = { policy = "round_robin" } })
    local a, b = fleet.replicas[1], fleet.replicas[2]
    assert.equal(200, command(fleet, "replicas/drain", { replica = b.name }).status)
    local streams = {}
    for i = 1, 10 do streams[i] = begin_stream(fleet, a) end
    assert.equal(200, command(fleet, "replicas/restore", { replica = b.name }).status)

    local drained = cjson.decode(command(fleet, "replicas/drain", { replica = a.name }):body())
    assert.equal("draining", drained.administrative)
    assert.equal(10, drained.in_flight)
    b.script = Replica.answers()
    for i = 1, 50 do
      local answer = fleet:chat("request " .. i)
      assert.equal(200, answer.status)
      assert.equal(b.name, answer:header("x-kvroute-replica"))
    end
    assert.equal(10, a:count())
    for i = 1, 8 do end_stream(streams[i]) end
    assert.equal(2, fleet:replica_state(a.name).in_flight)

    -- Removed with two streams open: they end as they should, and only then is it gone.
    assert.equal(200, command(fleet, "replicas/remove", { replica = a.name }).status)
    assert.equal("removed", fleet:replica_state(a.name).administrative)
    assert.equal(200, fleet:chat("after the removal").status)
    end_stream(streams[9])
    end_stream(streams[10])
    loop.wait(function() return fleet:replica_state(a.name) == nil end, 1, "the removed to go")
    assert.is_nil(fleet:metric(('kvroute_replica_in_flight{replica="%s"}'):format(a.name)))

    -- The last one draining: a refusal that says so, and a way back.
    command(fleet, "replicas/drain", { replica = b.name })
    local refused = fleet:chat("nobody is left")
    assert.equal(503, refused.status)
    assert.equal("draining", error_of(refused).code)
    assert.truthy(refused:header("retry-after"))
    command(fleet, "replicas/restore", { replica = b.name })
    assert.equal(200, fleet:chat("back").status)
  end)

  it("takes in a replica, with its own key and models, and shows the key to nobody else", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers() })
    local added = Replica.start({ script = Replica.answers() })
    local before = count_samples(fleet)
    local answer = command(fleet, "replicas", {
      url = added.url, key = "sk-of-the-new-one", weight = 2, models = { "special" },
    })
    assert.equal(200, answer.status)
    loop.wait(function() return fleet:replica_state(added.name).operational == "up" end, 2, "up")
    local served = fleet:chat("hello", { model = "special" })
    assert.equal(200, served.status)
    assert.equal(added.name, served:header("x-kvroute-replica"))
    local authorization
    for _, header in ipairs(added:take().request.headers) do
      if header[1]:lower() == "authorization" then authorization = header[2] end
    end
    assert.equal("Bearer sk-of-the-new-one", authorization)
    assert.is_true(count_samples(fleet) > before)

    assert.equal(409, command(fleet, "replicas", { url = added.url }).status)
    for _, path in ipairs({ "/metrics", "/admin/status", "/admin/replicas", "/admin/scripts" }) do
      local text = http.request(fleet.admin_address, { path = path }):body()
      assert.is_nil(text:find("sk-of-the-new-one", 1, true), path)
    end
    assert.is_nil(fleet.router:stderr():find("sk-of-the-new-one", 1, true))
    assert.is_nil(cjson.encode(fleet:rows(1)):find("sk-of-the-new-one", 1, true))
  end)

  it("weighs a replica anew from the next decision on", function()
    local fleet = Fleet.start({ replicas = 2, config = { policy = "least_outstanding" } })
    local a, b = fleet.replicas[1], fleet.replicas[2]
    command(fleet, "replicas/drain", { replica = b.name })
    local on_a = begin_stream(fleet, a)
    local also_on_a = begin_stream(fleet, a)
    command(fleet, "replicas/drain", { replica = a.name })
    command(fleet, "replicas/restore", { replica = b.name })
    local on_b = begin_stream(fleet, b)
    command(fleet, "replicas/restore", { replica = a.name })
    -- Two on a, one on b: b has less load, until a weighs four times as much.
    command(fleet, "replicas/weight", { replica = a.name, weight = 4 })
    local third = begin_stream(fleet, a)
    for _, stream in ipairs({ on_a, also_on_a, on_b, third }) do end_stream(stream) end
  end)

  it("goes on answering while the router ends", function()
    local fleet = Fleet.start({ replicas = 1 })
    local stream = begin_stream(fleet, fleet.replicas[1])
    fleet.router:signal(15)
    loop.wait(function() return fleet:admin("/admin/status").draining end, 1, "draining")
    assert.equal(1, fleet:metric("kvroute_draining"))
    assert.equal(1, fleet:admin("/admin/replicas").replicas[1].in_flight)
    end_stream(stream)
    local how, code = fleet.router:wait(3)
    assert.same({ "exited", 0 }, { how, code })
    fleet.ended = true
  end)
end)

describe("what it tells", function()
  after_each(Fleet.finish)

  it("counts each way to be refused apart, in body, row and metric", function()
    local fleet = Fleet.start({
      replicas = { { settings = { capacity = 1 } } },
      policies = {
        refuser = [[return { api = 1, name = "refuser", pick = function() return kvr.REJECT end }]],
      },
    })
    local replica = fleet.replicas[1]
    local expected = {}
    local function refused(status, code, answer)
      assert.equal(status, answer.status)
      assert.equal(code, error_of(answer).code)
      expected[#expected + 1] = code
      assert.equal(1, fleet:metric(('kvroute_rejections_total{code="%s"}'):format(code)))
    end

    refused(404, "model_not_found", fleet:chat("x", { model = "nobody" }))
    local stream = begin_stream(fleet, replica)
    refused(503, "at_capacity", fleet:chat("x"))
    end_stream(stream)
    command(fleet, "replicas/drain", { replica = replica.name })
    refused(503, "draining", fleet:chat("x"))
    command(fleet, "replicas/restore", { replica = replica.name })
    assert.equal(200, command(fleet, "policy", { name = "refuser" }).status)
    refused(503, "refused_by_policy", fleet:chat("x"))
    replica.healthy = false
    loop.wait(function()
      return fleet:replica_state(replica.name).operational == "down"
    end, 3, "the replica to be down")
    refused(503, "no_replicas", fleet:chat("x"))

    local seen = {}
    for _, row in ipairs(fleet:rows(6)) do seen[#seen + 1] = row.error end
    assert.same(expected, seen)
    assert.equal(5, fleet:metric('kvroute_requests_total{outcome="dropped"}'))
    assert.equal(1, fleet:metric('kvroute_requests_total{outcome="success"}'))
  end)

  it("keeps its series when clients make up models", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers() })
    assert.equal(200, fleet:chat("x").status)
    assert.equal(404, fleet:chat("x", { model = "unknown" }).status)
    local age = ('kvroute_replica_engine_age_seconds{replica="%s"}'):format(fleet.replicas[1].name)
    loop.wait(function() return fleet:metric(age) end, 3, "the engine's signals to be read")
    local before = count_samples(fleet)
    local client = fleet:connect()
    for i = 1, 2000 do
      local name = ('m%d "q" \n \\ '):format(i) .. ("n"):rep(i % 300)
      assert.equal(404, client:request(Fleet.chat_request("x", { model = name })).status)
    end
    local began = loop.now()
    local after, bytes = count_samples(fleet)
    assert.is_true(loop.now() - began < 0.1)
    assert.is_true(bytes < 100000)
    assert.equal(before, after)
    assert.equal(2001, fleet:metric('kvroute_rejections_total{code="model_not_found"}'))
    assert.equal(1, fleet:metric('kvroute_model_requests_total{model="test-model"}'))
  end)

  it("has a page that promtool accepts", function()
    if os.execute("command -v promtool >/dev/null") ~= 0 then
      pending("promtool is not installed (Debian: prometheus)")
      return
    end
    local fleet = Fleet.start({ replicas = { { models = { 'odd "name" \\ \n' } }, {} } })
    local odd = fleet:connect()
    odd:begin(Fleet.chat_request("x", { model = 'odd "name" \\ \n' }))
    fleet.replicas[1]:take():reply()
    assert.equal(200, odd:finish().status)
    local stream = begin_stream(fleet, fleet.replicas[2])
    local page = http.request(fleet.admin_address, { path = "/metrics" })
    assert.truthy(page:body():find([[{model="odd \"name\" \\ \n"} 1]], 1, true))
    Fleet.write(fleet.folder .. "/page", page:body())
    assert.equal(0, os.execute(("promtool check metrics < '%s/page' > '%s/lint' 2>&1"):format(
      fleet.folder, fleet.folder)), Fleet.read(fleet.folder .. "/lint"))
    end_stream(stream)
  end)

  it("lists open requests with how far they are", function()
    local fleet = Fleet.start({ replicas = 1 })
    local waiting = fleet:connect()
    waiting:begin(Fleet.chat_request("x", {}, { "x-request-id: first", "x-kvroute-tag: t1" }))
    local exchange = fleet.replicas[1]:take()
    local stream = begin_stream(fleet, fleet.replicas[1])
    local open = fleet:admin("/admin/requests")
    assert.equal(2, open.open)
    local first, second = open.requests[1], open.requests[2]
    assert.same({ "first", "t1", "sent", "test-model", "chat", fleet.replicas[1].name },
      { first.id, first.tag, first.phase, first.model, first.endpoint, first.replica })
    assert.equal("streaming", second.phase)
    assert.is_true(second.bytes_out > 0)
    exchange:reply()
    assert.equal(200, waiting:finish().status)
    end_stream(stream)
    assert.same({}, fleet:admin("/admin/requests").requests)
  end)
end)

describe("scripts", function()
  after_each(Fleet.finish)

  local function policy(reason)
    return ([[return { api = 1, name = "mine", pick = function() return kvr.least(), "%s" end }]])
      :format(reason)
  end

  local function reason(fleet)
    return fleet:chat("x"):header("x-kvroute-reason")
  end

  it("are refused with file and line, and what was in force stays", function()
    local fleet = Fleet.start({
      replicas = 1,
      script = Replica.answers(),
      policies = { mine = policy("one"), broken = "return {\n  api = 1,,\n}" },
      config = { policy = "mine" },
    })
    assert.equal("one", reason(fleet))
    local answer = command(fleet, "policy", { name = "broken" })
    assert.equal(422, answer.status)
    assert.truthy(error_of(answer).message:find("broken.lua:2:", 1, true))
    assert.equal("one", reason(fleet))

    Fleet.replace(fleet:policy_path("mine"), "return {\n\n  api == 1 }")
    answer = command(fleet, "reload", {})
    assert.equal(422, answer.status)
    local state = fleet:script("policy")
    assert.truthy(state.error:find("mine.lua:3:", 1, true))
    assert.equal(1, state.generation)
    assert.is_true(state.refused_s < 5)
    assert.equal("one", reason(fleet))
    assert.is_true(fleet:metric('kvroute_script_refusals_total{role="policy"}') >= 2)

    -- What it was comes back as what it is; what is new is new.
    Fleet.replace(fleet:policy_path("mine"), policy("one"))
    assert.equal(200, command(fleet, "reload", {}).status)
    assert.equal(1, fleet:script("policy").generation)
    assert.equal(cjson.null, fleet:script("policy").error)
    Fleet.replace(fleet:policy_path("mine"), policy("two"))
    assert.equal(200, command(fleet, "reload", {}).status)
    assert.equal("two", reason(fleet))
    assert.equal(2, fleet:metric('kvroute_script_generation{role="policy",name="mine"}'))
  end)

  it("that fail too often are out of use until the next good load, and that shows", function()
    local fleet = Fleet.start({
      replicas = 1,
      script = Replica.answers(),
      policies = { mine = [[
        return { api = 1, name = "mine", pick = function(request)
          if request.max_tokens == 77 then error("seventy-seven") end
          return kvr.least(), "fine"
        end }]] },
      config = { policy = "mine" },
    })
    for _ = 1, 12 do
      local answer = fleet:chat("x", { max_tokens = 77 })
      assert.equal(200, answer.status)
      assert.equal("fallback", answer:header("x-kvroute-reason"))
    end
    local state = fleet:script("policy")
    assert.is_true(state.quarantined)
    assert.truthy(state.error:find("mine.lua:2: seventy-seven", 1, true))
    assert.equal(10, state.counters.errors)
    assert.equal(1, fleet:metric('kvroute_script_quarantined{role="policy"}'))
    assert.equal(10, fleet:metric('kvroute_script_failures_total{role="policy",kind="error"}'))
    assert.equal(12, fleet:metric("kvroute_fallbacks_total"))
    assert.is_true(fleet:admin("/admin/status").scripts.policy.quarantined)
    assert.equal(200, command(fleet, "reload", {}).status)
    assert.equal("fine", reason(fleet))
    assert.equal(0, fleet:metric('kvroute_script_quarantined{role="policy"}'))
  end)

  it("are switched and set one by one, and rows name what decided", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers() })
    assert.equal("prefix_affinity", fleet:script("policy").name)
    assert.equal("load_min", fleet:script("spill").name)
    command(fleet, "params", { role = "spill", params = { factor = 3 } })
    assert.truthy(fleet:script("spill").params:find("factor=3", 1, true))
    command(fleet, "spill", { name = "off" })
    assert.equal("off", fleet:script("spill").name)
    assert.equal("prefix_affinity", fleet:script("policy").name)
    command(fleet, "policy", { name = "round_robin" })
    assert.equal("round_robin", fleet:chat("x"):header("x-kvroute-policy"))
    assert.equal("round_robin", fleet:row(1).policy.name)
    assert.equal(fleet:script("policy").hash, fleet:row(1).policy.hash)
    command(fleet, "canary", { name = "p2c", share = 1 })
    assert.equal("p2c", fleet:chat("x"):header("x-kvroute-policy"))
    assert.is_true(fleet:row(2).canary)
    assert.equal(1, fleet:metric("kvroute_canary_requests_total"))
    command(fleet, "canary", { name = "" })
    assert.equal("round_robin", fleet:chat("x"):header("x-kvroute-policy"))
  end)
end)
