-- Numbered cases, after public reports on other routers: what is remembered of prompts, sessions
-- and models, how much of it, and whom it pins to whom.
local cjson = require("cjson")
local chaos = require("e2e.support.chaos")
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")

local chat_request = Fleet.chat_request
local MB = 1048576

describe("the belief index", function()
  after_each(Peers.finish)

  it("B13 stays within its cap under a flood of prompts that never come again", function()
    local cap = Peers.size(4, 64)
    local replicas = {}
    for i, url in ipairs(Load.replicas(2)) do
      replicas[i] = { url = url, models = { "test-model" } }
    end
    local fleet = Fleet.start({ replicas = 0, config = {
      replicas = replicas, index = { memory_mb = cap }, rows = { max_bytes = 1e9 },
    } })
    local function index() return fleet:admin("/admin/index") end
    local flood = chaos.start(fleet, {
      requests = Peers.size(8000, 200000), concurrency = 16, abort = 0, bytes = 8192, longs = 0,
      seed = 13, seconds = 600,
    })
    -- From the first eviction on, the cap is what it is.
    loop.wait(function() return index().counters.blocks_evicted > 0 end, 60, "an eviction")
    local rss, evicted = fleet.router:rss(), index().counters.blocks_evicted
    local highest = rss
    while flood:running() do
      loop.sleep(0.05)
      if flood:running() then highest = math.max(highest, rss + Peers.grown(fleet, rss)) end
    end
    local sums = flood:finish()
    assert.equal(sums.requests, sums.whole)
    local stats = index()
    assert.is_true(stats.bytes <= cap * MB, ("%d bytes"):format(stats.bytes))
    assert.is_true(stats.blocks <= stats.blocks_max)
    assert.is_true(stats.counters.blocks_evicted > evicted + stats.blocks_max,
      "the flood is no flood: " .. stats.counters.blocks_evicted)
    assert.is_true(highest - rss < 8 * MB, ("%d bytes more"):format(highest - rss))
    -- A decision on a full index, its scan and its script included.
    local client, took = fleet:connect(), {}
    local before = fleet:admin("/admin/status").requests.received
    for i = 1, 200 do
      client:request(chat_request(("prompt %d "):format(i) .. Text.long(8000)))
    end
    local rows = fleet:rows(before + 200)
    for i = before + 1, before + 200 do took[#took + 1] = rows[i].decided_ms end
    table.sort(took)
    assert.is_true(took[100] < 0.1, ("%.3f ms"):format(took[100]))
    if Peers.full then
      print(("B13: %d requests, %.0f s, RSS %.1f MB, then at most %.1f MB, index %.1f MB, "
        .. "%d blocks evicted, decided in %.0f us p50, %.0f us p99"):format(sums.requests,
        sums.seconds, rss / MB, highest / MB, stats.bytes / MB, stats.counters.blocks_evicted,
        took[100] * 1e3, took[198] * 1e3))
    end
  end)

  it("B15 forgets a replica that is removed, and knows nothing of one that comes back", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers(), config = {
      health = { interval_ms = 20 },
    } })
    local resident, client = fleet.replicas[1], fleet:connect()
    local prompts = {}
    for i = 1, Peers.size(10, 200) do prompts[i] = ("prompt %d: "):format(i) .. Text.long(700) end
    local function ask_all(expected)
      for _, prompt in ipairs(prompts) do
        local answer = client:request(chat_request(prompt))
        assert.equal(200, answer.status)
        assert.equal(expected.name, answer:header("x-kvroute-replica"))
      end
    end
    ask_all(resident)
    -- The resident holds all the prompts, and so does each guest for as long as it is there.
    local function be_guest(guest)
      Peers.command(fleet, "replicas", { url = guest.url, models = { "test-model" } })
      loop.wait(function() return fleet:replica_state(guest.name).operational == "up" end, 2)
      assert.equal(0, fleet:replica_state(guest.name).index_blocks)
      Peers.command(fleet, "replicas/drain", { replica = resident.name })
      ask_all(guest)
      assert.is_true(fleet:replica_state(guest.name).index_blocks >= 10 * #prompts)
      Peers.command(fleet, "replicas/restore", { replica = resident.name })
      Peers.command(fleet, "replicas/remove", { replica = guest.name })
      local asked = guest:count()
      ask_all(resident)
      assert.equal(asked, guest:count())
    end
    local function index()
      local stats = fleet:admin("/admin/index")
      return { blocks = stats.blocks, beliefs = stats.beliefs, bytes = stats.bytes }
    end
    local alone, rss = index(), nil
    local cycles = Peers.size(30, 500)
    for cycle = 1, cycles do
      local guest = Replica.start({ script = Replica.answers() })
      be_guest(guest)
      guest:stop()
      assert.same(alone, index())
      if cycle == math.ceil(cycles / 3) then rss = fleet.router:rss() end
    end
    assert.is_true(Peers.grown(fleet, rss) < 2 * MB)
    -- The same address again: another one, with nothing in its cache.
    local guest = Replica.start({ script = Replica.answers() })
    be_guest(guest)
    be_guest(guest)
    local rows = fleet:rows(fleet:admin("/admin/status").requests.received)
    for i = #rows - 2 * #prompts + 1, #rows - #prompts do
      assert.equal(guest.name, rows[i].replica)
      assert.equal(0, rows[i].match_blocks)
    end
  end)

  it("B17 is of whole conversations, not of the opening that they share", function()
    local fleet = Fleet.start({ replicas = 4 })
    local system = "You are a careful assistant. " .. Text.long(600)
    local conversations = {}
    for i = 1, 20 do
      conversations[i] = { client = fleet:connect(), messages = {
        { role = "system", content = system },
        { role = "user", content = ("Conversation %d. "):format(i) .. Text.long(500 + i) },
      } }
    end
    local function begin(conversation)
      conversation.client:begin({ path = "/v1/chat/completions", body = {
        model = "test-model", messages = conversation.messages,
      } })
    end
    local function finish(conversation, exchange, turn)
      exchange:reply()
      conversation.client:finish()
      table.insert(conversation.messages, { role = "assistant", content = "Fine." })
      table.insert(conversation.messages,
        { role = "user", content = ("Turn %d. "):format(turn + 1) .. Text.long(300) })
    end
    -- All begin at about the same time ...
    for _, conversation in ipairs(conversations) do
      begin(conversation)
      conversation.exchange = Replica.take_any(fleet.replicas)
      conversation.home = conversation.exchange.replica
    end
    for _, each in ipairs(conversations) do finish(each, each.exchange, 1) end
    local counts = Peers.spread(fleet:rows(20))
    for _, replica in ipairs(fleet.replicas) do
      assert.is_true((counts[replica.name] or 0) >= 2, cjson.encode(counts))
    end
    -- ... and go on where they are known.
    for turn = 2, 4 do
      for _, conversation in ipairs(conversations) do
        begin(conversation)
        local exchange = Replica.take_any(fleet.replicas)
        assert.equal(conversation.home, exchange.replica)
        finish(conversation, exchange, turn)
      end
    end
    local rows = fleet:rows(80)
    for i = 1, 20 do
      local matched = #system / 64 + 5
      for turn = 2, 4 do
        local more = rows[(turn - 1) * 20 + i].match_blocks
        assert.is_true(more > matched, ("%d: %d blocks in turn %d"):format(i, more, turn))
        matched = more
      end
    end
  end)
end)

describe("what names a request", function()
  after_each(Peers.finish)

  it("B53 makes no series of its own, however many names clients invent", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers() })
    local client = fleet:connect()
    local function invented(i)
      local name = ('m%d "q" \n \\ é'):format(i) .. ("n"):rep(i % 300)
      return client:request(chat_request("x", { model = name, user = name }, {
        "x-kvroute-tag: tag-" .. i, "x-session-id: session-" .. i, "x-request-id: " .. i,
        ("x-invented-%d: x"):format(i), "User-Agent: agent-" .. i,
      })).status
    end
    local function page()
      return fleet:metrics_page()
    end
    local function series()
      local count = 0
      for line in page():gmatch("[^\n]+") do
        if line:sub(1, 1) ~= "#" then count = count + 1 end
      end
      return count
    end
    for _ = 1, 2 do -- each reason and each replica has its series by then
      assert.equal(200, client:request(chat_request("x")).status)
      assert.equal(200, client:request({ path = "/invented" }).status)
    end
    assert.equal(404, invented(0))
    for i, replica in ipairs(fleet.replicas) do -- all that is read of engines has been read
      local age = ('kvroute_replica_engine_age_seconds{replica="%s"}'):format(replica.name)
      loop.wait(function() return Peers.metric(fleet, age) end, 3, "signals of replica " .. i)
    end
    local before, count = series(), Peers.size(500, 10000)
    for i = 1, count do assert.equal(404, invented(i)) end
    for i = 1, 20 do -- paths that are nobody's
      assert.equal(200, client:request({ path = ("/invented/%d"):format(i) }).status)
    end
    assert.equal(before, series())
    assert.is_true(#page() < 1e6)
    local took = {}
    for i = 1, 5 do
      local began = loop.now()
      page()
      took[i] = loop.now() - began
    end
    table.sort(took)
    assert.is_true(took[3] < 0.02, ("the page takes %.0f ms"):format(took[3] * 1e3))
    assert.equal(count + 1, Peers.metric(fleet, 'kvroute_rejections_total{code="model_not_found"}'))
    assert.equal(count + 1, Peers.metric(fleet, 'kvroute_requests_total{outcome="dropped"}'))
    assert.equal(24, Peers.metric(fleet, 'kvroute_requests_total{outcome="success"}'))
  end)

  it("B63 is missing when it is missing, and then pins nothing to nobody", function()
    local fleet = Fleet.start({ replicas = 4, script = Replica.answers(), config = {
      policy = "session_affinity",
    } })
    local client, asked = fleet:connect(), 0
    local function ask(headers, body)
      local request = { path = "/v1/chat/completions", headers = headers,
        body = body or '{"model":"test-model"}' }
      assert.equal(200, client:request(request).status)
      asked = asked + 1
    end
    local function rows_since(from)
      local rows, since = fleet:rows(asked), {}
      for i = from + 1, asked do since[#since + 1] = rows[i] end
      return since
    end
    local function assert_spread(what, headers)
      local from = asked
      for _ = 1, 100 do ask(headers) end
      local rows = rows_since(from)
      for _, row in ipairs(rows) do
        assert.equal("no_session", row.reason)
        assert.is_nil(row.session)
      end
      for name, count in pairs(Peers.spread(rows)) do
        assert.equal(25, count, ("%s: %d of 100 on %s"):format(what, count, name))
      end
    end
    assert_spread("no header", nil)
    assert_spread("an empty header", { "X-Session-Id:" })
    assert_spread("a blank header", { "X-Session-Id: \t " })
    -- Without a header, a conversation is its opening.
    local from = asked
    for i = 1, 100 do ask(nil, Fleet.chat("Conversation " .. i)) end
    for name, count in pairs(Peers.spread(rows_since(from))) do
      assert.is_true(count >= 8 and count <= 50, ("%d of 100 on %s"):format(count, name))
    end
    -- However it is spelled, and whichever else is there.
    from = asked
    ask({ "X-Session-Id: s-1" })
    ask({ "x-session-id: s-1" })
    ask({ "X-SESSION-ID:s-1" })
    ask({ "x-conversation-id: other", "X-Session-ID: s-1  " })
    ask({ "X-Session-ID: s-1", "x-conversation-id: another" }, Fleet.chat("x", { user = "u" }))
    local rows = rows_since(from)
    for _, row in ipairs(rows) do
      assert.equal(rows[1].session, row.session)
      assert.equal("x-session-id", row.session_source)
      assert.equal(rows[1].replica, row.replica)
    end
    -- Of a long one, the first 255 bytes count.
    from = asked
    local long = ("v"):rep(255)
    ask({ "X-Session-Id: " .. long })
    ask({ "X-Session-Id: " .. long .. ("w"):rep(16384 - 255) })
    ask({ "X-Session-Id: " .. long:sub(1, 254) .. "!" })
    rows = rows_since(from)
    assert.equal(rows[1].session, rows[2].session)
    assert.not_equal(rows[1].session, rows[3].session)
  end)
end)
