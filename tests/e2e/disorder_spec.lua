-- All limits at once, clients that leave at any time, replicas that fail in every way: each request
-- ends once, with one row, and everything that was counted is given back (Fleet.finish checks it).
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")

local SECONDS, CLIENTS = 5, 70

-- A replica answers, is late, resets, is full, streams, stops or is silent: by the dice.
local function script(exchange)
  local dice = math.random()
  local function later(seconds, act)
    loop.after(seconds, function()
      if exchange.connection.fd then act() end
    end)
  end
  if dice < 0.4 then
    later(math.random() * 0.02, function() exchange:reply() end)
  elseif dice < 0.6 then
    exchange:stream()
    for i = 1, 5 do later(i * 0.005, function() exchange:event("word") end) end
    later(0.03, function() exchange:finish() end)
  elseif dice < 0.61 then
    later(math.random() * 0.01, function() exchange:reset() end)
  elseif dice < 0.65 then
    exchange:stream()
    exchange:event("word")
    if dice < 0.63 then later(0.005, function() exchange:reset() end) end
  elseif dice < 0.9 then
    exchange:reply({ status = 503, body = { error = { message = "full" } } })
  end
end

local function request_text()
  local size = math.random() < 0.1 and 200000 or math.random(2000)
  local key = math.random() < 0.05 and "nobody" or ({ "a", "b" })[math.random(2)]
  local text = http.text(Fleet.chat_request(("x"):rep(size), { stream = math.random() < 0.5 },
    { "Authorization: Bearer " .. key }))
  return math.random() < 0.1 and text:sub(1, math.random(#text)) or text
end

-- One step of one client: it may come, ask, go on asking, or go. Returns the client that is next.
local function step(fleet, client, statuses)
  local over = client and (client.connection.ended or client.answer and client.answer.done)
  if over then
    if client.answer and client.answer.done then
      statuses[client.answer.status] = (statuses[client.answer.status] or 0) + 1
    end
    if client.connection.ended or math.random() < 0.5 then
      client:close()
      client = nil
    else
      client.answer = nil
    end
  elseif client and client.answer and math.random() < 0.01 then
    if math.random() < 0.5 then client:reset() else client:close() end
    client = nil
  end
  client = client or fleet:connect()
  if not client.answer and math.random() < 0.1 then
    client:send(request_text())
    client.answer = client:expect()
    statuses.sent = statuses.sent + 1
  end
  return client
end

describe("all limits at once", function()
  local keys = os.tmpname()

  after_each(function()
    os.remove(keys)
    Fleet.finish()
  end)

  it("under clients that leave at any time and replicas that fail: all is given back", function()
    math.randomseed(7)
    Fleet.write(keys, [[keys = {
      { name = "a", key = "a", concurrency = 20 },
      { name = "b", key = "b" },
    }]])
    local each = { script = script, settings = { capacity = 4 } }
    local fleet = Fleet.start({ replicas = { each, each, each }, config = {
      client_keys = keys,
      health = { interval_ms = 30, passes = 1, failures = 5 },
      queue = { max = 30, deadline_ms = 300, order = "shortest" },
      timeouts = { first_byte_ms = 200, idle_ms = 200, total_ms = 600, connect_ms = 500,
        client_body_ms = 300, client_stall_ms = 500 },
      limits = { requests = 60, connections = 80, bodies_total_bytes = 3000000 },
    } })
    local statuses, clients = { sent = 0 }, {}
    local ends = loop.now() + SECONDS
    while loop.now() < ends do
      for i = 1, CLIENTS do clients[i] = step(fleet, clients[i], statuses) end
      loop.step(0.005)
    end
    for _, client in pairs(clients) do client:close() end
    local status = fleet:wait_idle(5)
    assert.is_true(statuses.sent > 500, statuses.sent .. " sent")
    assert.is_true(statuses[200] > 50 and statuses[429] > 50 and statuses[401] > 5)
    local outcomes = status.requests.outcomes
    assert.equal(status.requests.received,
      outcomes.success + outcomes.failed + outcomes.dropped + outcomes.cancelled)
    local page = fleet:metrics_page()
    for name in ("ab"):gmatch(".") do
      local open = page:match(('kvroute_client_key_requests_open{client="%s"} (%%d+)'):format(name))
      assert.equal("0", open)
    end
    assert.equal("0", page:match("\nkvroute_request_held_bytes (%d+)"))
  end)
end)
