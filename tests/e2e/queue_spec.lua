-- How much a replica may have at once, and the queue of what it has no room for.
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")

local chat_request = Fleet.chat_request

local one_at_a_time = { { settings = { capacity = 1 } } }

describe("a replica's capacity", function()
  after_each(Fleet.finish)

  it("without a queue: never more streams than that, 503 for the rest", function()
    local fleet = Fleet.start({ replicas = { { settings = { capacity = 2 } } } })
    local clients, refused = {}, 0
    for i = 1, 10 do clients[i] = fleet:begin_chat() end
    loop.wait(function()
      refused = 0
      for _, client in ipairs(clients) do refused = refused + (client.answer.done and 1 or 0) end
      return refused == 8
    end, 2, "eight refusals")
    for _, client in ipairs(clients) do
      if client.answer.done then
        check.api_error(client.answer, 503, "at_capacity")
        assert.equal("1", client.answer:header("retry-after"))
      end
    end
    local first, second = fleet.replicas[1]:take(), fleet.replicas[1]:take()
    first:stream()
    first:event("one") -- its head is through, and it still counts
    loop.sleep(0.05)
    check.api_error(fleet:chat("Hello"), 503, "at_capacity")
    first:finish()
    second:reply()
    fleet:rows(11)
    assert.equal(200, (function()
      local client = fleet:begin_chat()
      fleet.replicas[1]:take():reply()
      return client:finish().status
    end)())
    assert.equal(9, fleet:hits("replicas.capacity"))
  end)
end)

describe("the queue", function()
  after_each(Fleet.finish)

  it("holds requests until a replica has room, in their order, up to queue.max", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, config = { queue = { max = 2 } } })
    local running = fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    local second = fleet:begin_chat("second")
    fleet:wait_waiting(1)
    local third = fleet:begin_chat("third")
    fleet:wait_waiting(2)
    local refused = fleet:chat("fourth")
    local err = check.api_error(refused, 429, "queue_full")
    assert.equal("rate_limit_error", err.type)
    assert.equal("1", refused:header("retry-after"))
    assert.is_truthy(err.message:find("queue.max", 1, true))
    assert.equal(1, fleet.replicas[1]:count())
    for _, each in ipairs({ { running, "running" }, { second, "second" }, { third, "third" } }) do
      if each[1] ~= running then exchange = fleet.replicas[1]:take() end
      assert.is_truthy(exchange.body:find(each[2], 1, true))
      exchange:reply()
      assert.equal(200, each[1]:finish().status)
    end
    local rows = fleet:rows(4)
    assert.equal("queue_full", rows[1].error)
    assert.is_nil(rows[2].waited_ms)
    assert.is_true(rows[3].waited_ms > 0 and rows[4].waited_ms > 0)
    assert.equal(1, fleet:hits("queue.max"))
  end)

  it("may take the one first that has least to prefill", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, config = {
      queue = { max = 8, order = "shortest" },
    } })
    fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    fleet:begin_chat(("a long prompt "):rep(500))
    fleet:wait_waiting(1)
    fleet:begin_chat("a short one")
    fleet:wait_waiting(2)
    exchange:reply()
    exchange = fleet.replicas[1]:take()
    assert.is_truthy(exchange.body:find("a short one", 1, true))
    exchange:reply()
    exchange = fleet.replicas[1]:take()
    assert.is_truthy(exchange.body:find("a long prompt", 1, true))
    exchange:reply()
    fleet:rows(3)
  end)

  it("lets nobody wait past queue.deadline_ms", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, config = {
      queue = { max = 100, deadline_ms = 150 },
    } })
    fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    -- Requests come all the time, so that one comes while another's time is up and not yet noticed.
    local clients = {}
    for i = 1, 60 do
      clients[i] = fleet:begin_chat("late " .. i)
      loop.sleep(0.005)
    end
    for _, client in ipairs(clients) do
      local err = check.api_error(client:finish(2), 503, "queue_deadline")
      assert.is_truthy(err.message:find("queue.deadline_ms", 1, true))
    end
    assert.equal(1, fleet.replicas[1]:count())
    exchange:reply()
    for i, row in ipairs(fleet:rows(61)) do
      if i < 61 then
        assert.equal("queue_deadline", row.error)
        assert.is_true(row.waited_ms >= 150 and row.waited_ms < 400, "waited " .. row.waited_ms)
      end
    end
    assert.equal(60, fleet:hits("queue.deadline_ms"))
  end)

  it("counts a pipelined request from when the one before it ran out", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, config = {
      queue = { max = 8, deadline_ms = 1000 },
      health = { interval_ms = 60000 }, scrape = { enabled = false }, -- only a timer wakes it
    } })
    fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    local client = fleet:connect()
    client:send(http.text(chat_request("second")) .. http.text(chat_request("third")))
    for _ = 1, 2 do
      client:expect("POST")
      check.api_error(client:finish(4), 503, "queue_deadline")
    end
    exchange:reply()
    for i, row in ipairs(fleet:rows(3)) do
      if i < 3 then assert.is_true(row.total_ms - row.waited_ms < 500, "total " .. row.total_ms) end
    end
  end)

  it("lets nobody whom the policy holds wait past it", function()
    local fleet = Fleet.start({ replicas = 1, policies = { hold = [[
      return { api = 1, name = "hold", pick = function(request, view)
        if view.count == 0 then return nil end
        return kvr.HOLD
      end }]] }, config = { policy = "hold", queue = { max = 8, deadline_ms = 300 } } })
    local clients = { fleet:begin_chat("one"), fleet:begin_chat("two") }
    for _, client in ipairs(clients) do check.api_error(client:finish(3), 503, "queue_deadline") end
    for _, row in ipairs(fleet:rows(2)) do assert.is_true(row.waited_ms >= 300) end
  end)

  it("may run out for very many at once", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, stack_kb = 192, config = {
      queue = { max = 1000, deadline_ms = 1500 },
    } })
    fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    local clients = {}
    for i = 1, 500 do clients[i] = fleet:begin_chat("late") end
    fleet:wait_waiting(500)
    for _, client in ipairs(clients) do check.api_error(client:finish(4), 503, "queue_deadline") end
    exchange:reply()
    fleet:rows(501)
  end)

  it("is left by a client that goes away", function()
    local fleet = Fleet.start({ replicas = one_at_a_time, config = { queue = { max = 8 } } })
    local running = fleet:begin_chat("running")
    local exchange = fleet.replicas[1]:take()
    local gone = fleet:begin_chat("gone")
    fleet:wait_waiting(1)
    local stays = fleet:begin_chat("stays")
    fleet:wait_waiting(2)
    gone:reset()
    fleet:wait_waiting(1)
    assert.equal("cancelled", fleet:row(1).outcome)
    exchange:reply()
    running:finish()
    exchange = fleet.replicas[1]:take()
    assert.is_truthy(exchange.body:find("stays", 1, true))
    exchange:reply()
    assert.equal(200, stays:finish().status)
  end)

  it("is no way around an outage, or to a model that nobody has", function()
    local fleet = Fleet.start({ replicas = 2, config = { queue = { max = 8 } } })
    check.api_error(fleet:chat("Hello", { model = "none" }), 404, "model_not_found")
    for _, each in ipairs(fleet.replicas) do
      fleet:admin("/admin/replicas/drain", { replica = each.name })
    end
    check.api_error(fleet:chat("Hello"), 503, "draining")
    for _, each in ipairs(fleet.replicas) do each.healthy = false end
    loop.wait(function() return fleet:admin("/admin/status").replicas.down == 2 end)
    check.api_error(fleet:chat("Hello"), 503, "no_replicas")
    assert.equal(0, (fleet:metric("kvroute_queued_requests_total") or 0))
  end)

  it("takes in a request whose replica failed, until another has room", function()
    local fleet = Fleet.start({ replicas = { { settings = { capacity = 1 } },
      { settings = { capacity = 1 } } }, config = { queue = { max = 8 }, policy = "round_robin" } })
    local first, second = fleet:begin_chat("first"), fleet:begin_chat("second")
    local a, b = fleet.replicas[1]:take(), fleet.replicas[2]:take()
    a:reset()
    fleet:wait_waiting(1)
    b:reply()
    fleet.replicas[2]:take():reply()
    assert.equal(200, first:finish().status)
    assert.equal(200, second:finish().status)
    local row = fleet:row(2)
    assert.equal(1, row.moves)
    assert.is_true(row.waited_ms > 0)
  end)
end)
