-- Numbered cases, after public reports on other routers: who is taken for dead, who is not, and
-- what the others are told meanwhile.
local cjson = require("cjson")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

local function posts(emulator, index)
  local found = {}
  for _, entry in ipairs(emulator:log(index)) do
    if entry.method == "POST" then found[#found + 1] = entry end
  end
  return found
end

local function header(entry, name)
  for _, each in ipairs(entry.headers) do
    if each[1]:lower() == name then return each[2] end
  end
end

describe("a replica's health", function()
  after_each(Peers.finish)

  it("B11 is not what an engine says to a bad request", function()
    local emulator = Peers.emulator(2, "--max-model-len", "256", "--time-scale", "50")
    local fleet = Peers.start(emulator, { policy = "round_robin" })
    local client = fleet:connect()
    local long = ("word "):rep(400)
    for _ = 1, 50 do
      local answer = client:request(chat_request(long))
      assert.equal(400, answer.status)
      assert.equal("BadRequestError", answer:json().error.type)
    end
    assert.equal(50, #posts(emulator, 1) + #posts(emulator, 2), "one of them was retried")
    for _, address in ipairs(emulator.addresses) do
      local state = fleet:replica_state(address)
      assert.equal("up", state.operational)
      assert.equal(0, state.ejections)
      assert.is_true(state.error_rate == cjson.null or state.error_rate == 0)
    end
    for _ = 1, 10 do assert.equal(200, client:request(chat_request("short")).status) end
    assert.equal(50, Peers.metric(fleet, 'kvroute_requests_total{outcome="failed"}'))
    assert.equal(0, Peers.metric(fleet, "kvroute_moves_total"))
  end)

  it("B35 is asked for with the replica's key, which nobody else gets to see", function()
    local keyed = Peers.emulator(1, "--key", "sk-of-the-engine", "--time-scale", "50")
    local open = Emulator.start({
      args = { "--served-model-name", "open", "--time-scale", "50" },
    })
    local fleet = Fleet.start({ replicas = 0, config = {
      log_level = "debug",
      policy = "round_robin",
      replicas = { { url = keyed.urls[1], key = "sk-of-the-engine" }, { url = open.urls[1] } },
    } })
    loop.wait(function() -- probes, the list of models and the metrics page: all need it
      local state = fleet:replica_state(keyed.addresses[1])
      return state.operational == "up" and state.models == 1 and state.engine ~= cjson.null
    end, 3, "the engine with a key to be known")
    local mine = { "Authorization: Bearer sk-of-the-client" }
    local shown = {}
    for _, model in ipairs({ "test-model", "open", "none" }) do
      local answer = fleet:chat("Hello", { model = model }, mine)
      assert.equal(model == "none" and 404 or 200, answer.status)
      shown[#shown + 1] = answer:bytes()
    end
    for _, entry in ipairs(keyed:log(1)) do
      assert.equal("Bearer sk-of-the-engine", header(entry, "authorization"), entry.target)
    end
    -- Without a key of its own, the client's passes; probes then have none.
    assert.equal("Bearer sk-of-the-client", header(posts(open, 1)[1], "authorization"))
    keyed:fault("reset", 1)
    shown[#shown + 1] = fleet:chat("Hello", nil, mine):bytes()
    assert.is_truthy(shown[#shown]:find("all_replicas_failed", 1, true))
    for _, path in ipairs({ "/metrics", "/admin/status", "/admin/replicas", "/admin/requests" }) do
      shown[#shown + 1] = http.request(fleet.admin_address, { path = path }):bytes()
    end
    fleet:rows(4)
    shown[#shown + 1] = Fleet.read(fleet.folder .. "/rows.jsonl")
    shown[#shown + 1] = fleet.router:stderr() .. fleet.router:stdout()
    for _, text in ipairs(shown) do
      assert.is_nil(text:find("sk-of-the-engine", 1, true))
      assert.is_nil(text:find("sk-of-the-client", 1, true))
    end
  end)

  it("B61 and what a request is told for want of a replica: each cause has its code", function()
    local fleet = Fleet.start({
      replicas = { { settings = { capacity = 1 } }, { settings = { capacity = 1 } } },
      config = { health = { interval_ms = 50 }, queue = { max = 1, deadline_ms = 100 } },
    })
    local a, b = fleet.replicas[1], fleet.replicas[2]
    local seen, expected, received = {}, {}, 0
    local function refused(status, code, more)
      local answer = fleet:chat("Hello", more)
      assert.equal(status, answer.status)
      local problem = answer:json().error
      assert.equal(code, problem.code)
      assert.equal(status == 503 or status == 429, answer:header("retry-after") ~= nil)
      if not seen[code] then expected[#expected + 1] = code end
      seen[code] = (seen[code] or 0) + 1
      assert.equal(seen[code],
        Peers.metric(fleet, ('kvroute_rejections_total{code="%s"}'):format(code)))
      received = received + 1
      local row = fleet:row(received)
      assert.equal(code, row.error)
      assert.equal(status, row.status)
    end
    local function wait_for(operational)
      for _, replica in ipairs({ a, b }) do
        loop.wait(function()
          return fleet:replica_state(replica.name).operational == operational
        end, 3, operational)
      end
    end
    local function both(path)
      for _, each in ipairs({ a, b }) do Peers.command(fleet, path, { replica = each.name }) end
    end

    refused(404, "model_not_found", { model = "nobody's" })
    local clients = { fleet:connect(), fleet:connect() }
    for _, client in ipairs(clients) do client:begin(chat_request("long")) end
    local exchanges = { Replica.take_any(fleet.replicas), Replica.take_any(fleet.replicas) }
    local waiting = fleet:connect()
    waiting:begin(chat_request("waits"))
    loop.wait(function() return fleet:admin("/admin/status").requests.waiting == 1 end)
    refused(429, "queue_full")
    assert.equal(503, waiting:finish().status)
    assert.equal("queue_deadline", waiting.reading:json().error.code)
    received = received + 1
    for _, exchange in ipairs(exchanges) do exchange:reply() end
    for _, client in ipairs(clients) do client:finish() end
    received = received + #clients
    both("replicas/drain")
    refused(503, "draining")
    both("replicas/restore")
    a.healthy, b.healthy = false, false -- every probe fails
    wait_for("down")
    refused(503, "no_replicas")
    a.healthy, b.healthy = true, true
    wait_for("up")
    for _, replica in ipairs({ a, b }) do -- every request fails
      replica.healthy = false
      replica.script = function(exchange) exchange:reset() end
    end
    refused(502, "all_replicas_failed")
    refused(503, "no_replicas")
    assert.same({ "model_not_found", "queue_full", "draining", "no_replicas",
      "all_replicas_failed" }, expected)
  end)

  it("B65 survives late probes while it talks, and is over at once when it dies", function()
    local busy, other = Peers.emulator(1), Peers.emulator(1, "--time-scale", "50")
    local fleet = Peers.start({ busy, other }, {
      policy = "session_affinity", health = { interval_ms = 50, timeout_ms = 100, ramp_ms = 0 },
    })
    local name = busy.addresses[1]
    -- Two streams on it, and probes that take up to three times as long as they may.
    local clients = {}
    Peers.command(fleet, "replicas/drain", { replica = other.addresses[1] })
    for i = 1, 2 do
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Talk.", { stream = true, max_tokens = 8000 }))
      clients[i]:wait_body(1)
    end
    Peers.command(fleet, "replicas/restore", { replica = other.addresses[1] })
    local timed_out, seed = 0, 65
    for _ = 1, Peers.size(12, 60) do
      seed = seed * 1103515245 % 2147483648
      local delay = seed % 300
      busy:fault(("stall;path=/health;ms=%d;times=1"):format(delay), 1)
      timed_out = timed_out + (delay > 130 and 1 or 0)
      loop.sleep(0.12)
      assert.equal("up", fleet:replica_state(name).operational)
    end
    assert.is_true(timed_out >= 4)
    local state = fleet:replica_state(name)
    assert.equal(0, state.ejections)
    assert.equal(2, state.in_flight)
    -- Its death is no probe's to find: what is open breaks, and nobody can connect.
    local died = loop.now()
    busy:kill()
    for _, client in ipairs(clients) do assert.equal("reset", client:wait_end(1)) end
    loop.wait(function() return fleet:replica_state(name).operational == "down" end, 1)
    assert.is_true(loop.now() - died < 1)
    for i = 1, 10 do
      assert.equal(200, fleet:chat("Hello", nil, { "x-session-id: " .. i }).status)
    end
    local rows = fleet:rows(12)
    for i = 1, 2 do assert.equal("lost_mid_stream", rows[i].error) end
    for i = 3, 12 do assert.equal(other.addresses[1], rows[i].replica) end
  end)

  it("B67 decides what /v1/models lists, and the engine's objects stay whole", function()
    local function engine(...)
      return Emulator.start({ args = { "--time-scale", "50", ... } })
    end
    local a = Peers.emulator(1, "--max-model-len", "8192")
    local b = Peers.emulator(1, "--max-model-len", "4096")
    local c = engine("--profile", "rtx3090-8b-awq", "--lora", "tuned")
    local slow = engine("--served-model-name", "late")
    local bad = engine("--served-model-name", "never")
    slow:fault("stall;path=/v1/models;ms=5000", 1)
    bad:fault("status;path=/v1/models;code=500", 1)
    local fleet = Peers.start({ a, b, c, slow, bad }, { models = { refresh_ms = 200 } },
      { ready = false })
    local function listed()
      local began = loop.now()
      local answer = fleet:request({ path = "/v1/models" })
      assert.equal(200, answer.status)
      assert.is_true(loop.now() - began < 0.5, "a slow replica delays the list")
      local by_id, ids = {}, {}
      for _, model in ipairs(answer:json().data) do
        assert.is_nil(by_id[model.id], model.id .. " is there twice")
        by_id[model.id] = model
        ids[#ids + 1] = model.id
      end
      return by_id, ids
    end
    local own = {}
    for _, model in ipairs(http.request(b.addresses[1], { path = "/v1/models" }):json().data) do
      own[model.id] = model
    end
    local models
    loop.wait(function()
      models = listed()
      return models["test-model"] and models.tuned and models["test-model"].max_model_len == 4096
    end, 3, "all models")
    local created = models["test-model"].created
    own["test-model"].created = created
    for _, object in ipairs({ own["test-model"], models["test-model"] }) do -- made anew each time
      for _, permission in ipairs(object.permission or {}) do
        permission.id, permission.created = nil, nil
      end
    end
    assert.same(own["test-model"], models["test-model"])
    assert.is_truthy(models.tuned.parent)
    assert.is_nil(models.late)
    assert.is_nil(models.never)
    loop.sleep(1.1) -- engines stamp their objects with the second of the answer
    assert.equal(created, listed()["test-model"].created)
    Peers.command(fleet, "replicas/remove", { replica = c.addresses[1] })
    models = listed()
    assert.is_nil(models.tuned)
    assert.is_truthy(models["test-model"])
    Peers.command(fleet, "replicas/remove", { replica = b.addresses[1] })
    loop.wait(function() return listed()["test-model"].max_model_len == 8192 end, 1)
  end)
end)
