-- Numbered cases, after public reports on other routers: who counts what is open, and whether every
-- way out takes it back.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local chaos = require("e2e.support.chaos")

local chat_request = Fleet.chat_request

describe("what is open", function()
  after_each(Peers.finish)

  it("B01 ends at the engine when the client gives up, at once and for good", function()
    local emulator = Peers.emulator(2)
    local fleet = Peers.start(emulator, { policy = "round_robin" })
    local count = 0
    for _, stream in ipairs({ false, true }) do
      for _, how in ipairs({ "close", "reset" }) do
        count = count + 1
        local id = ("b01-%d"):format(count)
        local function mine(entry)
          for _, header in ipairs(entry.headers) do
            if header[2] == id then return true end
          end
        end
        local client = fleet:connect()
        client:begin(chat_request("Count to ten thousand.", { max_tokens = 8000, stream = stream },
          { "X-Request-Id: " .. id })) -- 16 s of the engine
        loop.wait(function()
          local running = emulator:replicas()
          return running[1].running + running[2].running == 1
        end)
        loop.sleep(0.1)
        local left = loop.now()
        client[how](client)
        local entry = emulator:wait_log(function(each)
          return mine(each) and each.outcome ~= "open"
        end)
        local took = loop.now() - left
        assert.is_true(took < 0.1, ("the engine went on for %.3f s"):format(took))
        assert.equal("aborted", entry.outcome)
        emulator:wait_idle(0.2)
        local row = fleet:row(count)
        assert.equal("cancelled", row.outcome)
        assert.equal("client_gone", row.error)
        assert.is_nil(row.moves)
        fleet:wait_idle()
        local asked = 0
        for i = 1, 2 do
          for _, each in ipairs(emulator:log(i)) do
            asked = asked + (each.method == "POST" and 1 or 0)
          end
        end
        assert.equal(count, asked, "something was run twice")
      end
    end
  end)

  it("B03 is nothing after aborts in every phase, and nobody is preferred for it", function()
    local emulator = Peers.emulator(3, "--time-scale", "50")
    local fleet = Peers.start(emulator, { policy = "least_outstanding" })
    local load = chaos.start(fleet, {
      requests = Peers.size(3000, 10000), concurrency = 48, abort = 0.8, seed = 3,
    })
    local result = load:finish(60)
    assert.equal(0, result.broken)
    for _, phase in ipairs({
      "connected", "head_half", "head_sent", "body_half", "request_sent", "first_byte", "midway",
    }) do
      assert.is_true(result.aborted[phase] > 50, phase .. " " .. tostring(result.aborted[phase]))
    end
    local status = fleet:wait_idle(5) -- in flight and tokens, each replica's and together
    emulator:wait_idle(5)
    local cancelled = status.requests.outcomes.cancelled
    assert.is_true(cancelled > 100, "cancelled " .. cancelled)
    local before = status.requests.received
    local client = fleet:connect()
    for i = 1, 60 do
      assert.equal(200, client:request(chat_request("x" .. i, { max_tokens = 1 })).status)
    end
    for name, count in pairs(Peers.spread(fleet:rows(before + 60), before + 1)) do
      assert.is_true(count >= 15 and count <= 25, ("%d of 60 on %s"):format(count, name))
    end
  end)

  it("B05 stays what it is while probes pass, fail, eject and readmit", function()
    local fleet = Fleet.start({ replicas = 2, config = {
      policy = "least_outstanding", health = { interval_ms = 20, timeout_ms = 10000, ramp_ms = 0 },
    } })
    local a, b = fleet.replicas[1], fleet.replicas[2]
    Peers.command(fleet, "replicas/drain", { replica = b.name })
    local streams = {}
    for i = 1, 8 do
      local client = fleet:connect()
      client:begin(chat_request("stream " .. i, { stream = true }))
      local exchange = a:take()
      exchange:stream()
      client:wait_body(#exchange:event("one"))
      streams[i] = { client = client, exchange = exchange }
    end
    Peers.command(fleet, "replicas/restore", { replica = b.name })
    local function assert_eight(operational)
      local state = fleet:replica_state(a.name)
      assert.equal(8, state.in_flight)
      assert.is_true(state.uncached_tokens >= 0)
      if operational then assert.equal(operational, state.operational) end
      local gauge = ('kvroute_replica_in_flight{replica="%s"}'):format(a.name)
      assert.equal(8, Peers.metric(fleet, gauge))
    end
    local from, until_probes = a.asked["/health"], Peers.size(60, 500)
    while a.asked["/health"] - from < until_probes do
      assert_eight("up")
      loop.sleep(0.02)
    end
    for _ = 1, 3 do
      a.healthy = false
      loop.wait(function() return fleet:replica_state(a.name).operational == "down" end)
      assert_eight("down")
      a.healthy = true
      loop.wait(function() return fleet:replica_state(a.name).operational == "up" end)
      assert_eight("up")
    end
    -- The eight are seen: who has none gets the next ones.
    b.script = Replica.answers()
    for _ = 1, 4 do assert.equal(200, fleet:chat("x").status) end
    assert.equal(4, b:count())
    for _, stream in ipairs(streams) do
      stream.exchange:finish()
      assert.equal(200, stream.client:finish().status)
    end
    assert.equal(0, fleet:replica_state(a.name).in_flight)
  end)

  it("B07 is capped as what is open, not as a rate", function()
    local fleet = Fleet.start({ replicas = { { settings = { capacity = 2 } } } })
    local replica = fleet.replicas[1]
    local refused = 0
    -- Ten at once: two are served, the others hear that there is no room.
    local function ten()
      local clients, admitted = {}, {}
      for i = 1, 10 do
        clients[i] = fleet:connect()
        clients[i]:begin(chat_request("Hello", { stream = true }))
      end
      loop.wait(function()
        local known = #replica.exchanges - replica.taken
        for _, client in ipairs(clients) do known = known + (client.reading.done and 1 or 0) end
        return known >= 10
      end, 2, "ten verdicts")
      for _, client in ipairs(clients) do
        if not client.reading.done then
          admitted[#admitted + 1] = client
        else
          refused = refused + 1
          assert.equal(503, client.reading.status)
          assert.equal("at_capacity", client.reading:json().error.code)
        end
      end
      return admitted
    end
    local clients = ten()
    assert.equal(2, #clients)
    local exchanges = { replica:take(), replica:take() }
    for i, exchange in ipairs(exchanges) do
      exchange:stream() -- a head and an event end nothing
      clients[i]:wait_body(#exchange:event("one"))
    end
    loop.sleep(0.3) -- nor does time
    assert.equal(0, #ten())
    assert.equal(2, fleet:replica_state(replica.name).in_flight)
    -- The end of a body does, and an abort.
    exchanges[1]:finish()
    assert.equal(200, clients[1]:finish().status)
    local next_ones = ten()
    assert.equal(1, #next_ones)
    local third = replica:take()
    clients[2]:reset()
    exchanges[2]:wait_gone(1)
    assert.equal(1, #ten())
    local fourth = replica:take()
    third:reply()
    fourth:reply()
    fleet:wait_idle()
    assert.equal(4, replica:count())
    assert.equal(refused, Peers.metric(fleet, 'kvroute_rejections_total{code="at_capacity"}'))
  end)

  it("B07 and what is over the cap may wait, so many and no more", function()
    local fleet = Fleet.start({
      replicas = { { settings = { capacity = 2 } } }, config = { queue = { max = 3 } },
    })
    local replica = fleet.replicas[1]
    local clients = {}
    for i = 1, 10 do
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Hello " .. i))
    end
    local function refused()
      local count = 0
      for _, client in ipairs(clients) do
        if client.reading.done and client.reading.status == 429 then
          assert.equal("queue_full", client.reading:json().error.code)
          assert.is_truthy(client.reading:header("retry-after"))
          count = count + 1
        end
      end
      return count
    end
    loop.wait(function() return refused() == 5 and replica:count() == 2 end)
    loop.sleep(0.2)
    assert.equal(2, replica:count())
    assert.equal(3, fleet:admin("/admin/status").requests.waiting)
    -- One of those that wait gives up: it is no longer there when its turn comes.
    local first, second = replica:take(), replica:take()
    clients[4]:reset()
    loop.wait(function() return fleet:admin("/admin/status").requests.waiting == 2 end)
    for _, exchange in ipairs({ first, second }) do
      exchange:reply()
      local third = replica:take()
      assert.is_true(replica:count() <= 4)
      third:reply()
    end
    fleet:wait_idle()
    assert.equal(4, replica:count())
    for _, exchange in ipairs(replica.exchanges) do
      assert.is_nil(exchange.body:find("Hello 4", 1, true))
    end
  end)

  it("B09 is part of every policy's load, whatever was polled when", function()
    -- What was polled says that one of them is idle and the other is not, and will for a while.
    local fleet = Fleet.start({
      replicas = { {}, { metrics = 'vllm:num_requests_running{model_name="m"} 3\n' } },
      config = { scrape = { interval_ms = 5000 } },
    })
    loop.wait(function()
      local engine = fleet:replica_state(fleet.replicas[2].name).engine
      return engine ~= cjson.null and engine.running == 3
    end)
    local function eight()
      local clients = {}
      for i = 1, 8 do clients[i] = fleet:connect() end
      for i, client in ipairs(clients) do client:begin(chat_request(("%d "):format(i):rep(99))) end
      local counts = {}
      loop.wait(function()
        for i, replica in ipairs(fleet.replicas) do counts[i] = replica:count() - replica.taken end
        return counts[1] + counts[2] == 8
      end)
      for _, replica in ipairs(fleet.replicas) do
        while replica:count() > replica.taken do replica:take():reply() end
      end
      for _, client in ipairs(clients) do assert.equal(200, client:finish().status) end
      return counts
    end
    -- All but round_robin and session_affinity, which have no load term and say so.
    for _, policy in ipairs({
      "p2c", "least_outstanding", "prefix_affinity", "bounded_session_affinity", "prefix_hash",
    }) do
      Peers.command(fleet, "policy", { name = policy })
      local counts = eight()
      local one_side = math.max(counts[1], counts[2])
      assert.is_true(one_side <= 5, ("%s: %d and %d"):format(policy, counts[1], counts[2]))
    end
  end)
end)

