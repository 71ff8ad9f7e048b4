-- Time-outs: connect, first byte, idle and total, each by its own name; what moves and what does
-- not; and what a request's own headers may ask for.
local socket = require("posix.sys.socket")
local check = require("e2e.support.check")
local connection = require("e2e.support.connection")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

local function hits(fleet, setting)
  local page = http.request(fleet.admin_address, { path = "/metrics" }):body()
  return tonumber(page:match(('kvroute_limit_hits_total{limit="%s"} (%%d+)'):format(setting)))
end

-- A fleet that is not probed again once it is up, so that only requests find out.
local function start(options)
  options.config = options.config or {}
  options.config.policy = options.config.policy or "round_robin"
  options.config.health = { interval_ms = 60000, timeout_ms = 50000 }
  options.config.scrape = { enabled = false }
  return Fleet.start(options)
end

-- Connections to it are neither accepted nor refused from now on: its queue of them is full.
local function make_black_hole(replica)
  loop.forget(replica.listening)
  socket.listen(replica.listening, 0)
  local fillers = {}
  for i = 1, 3 do
    local fd = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0)
    connection.prepare(fd)
    socket.connect(fd, connection.parse(replica.name))
    fillers[i] = fd
  end
  loop.sleep(0.05)
  return fillers
end

describe("a connection to a replica that does not come up", function()
  after_each(Fleet.finish)

  it("is given up after timeouts.connect_ms, and the request moves", function()
    local fleet = start({ replicas = { {}, { script = Replica.answers() } }, config = {
      timeouts = { connect_ms = 300 },
    } })
    make_black_hole(fleet.replicas[1])
    local slow = 0
    for _ = 1, 2 do
      local began = loop.now()
      assert.equal(200, fleet:chat("Hello").status)
      if loop.now() - began > 0.25 then slow = slow + 1 end
    end
    assert.equal(1, slow)
    local moved
    for _, row in ipairs(fleet:rows(2)) do moved = row.moves and row or moved end
    assert.same({ fleet.replicas[1].name }, moved.failed_on)
    assert.is_true(moved.total_ms >= 290 and moved.total_ms < 900, "took " .. moved.total_ms)
    assert.equal(1, hits(fleet, "timeouts.connect_ms"))
  end)

  it("is given up in time although the replica has been removed meanwhile", function()
    local fleet = start({ replicas = { {}, { script = Replica.answers() } }, config = {
      timeouts = { connect_ms = 600 },
    } })
    make_black_hole(fleet.replicas[1])
    local clients = {}
    for i = 1, 2 do
      clients[i] = fleet:connect()
      clients[i]:begin(Fleet.chat_request("Hello"))
    end
    loop.wait(function() return fleet:admin("/admin/status").exchanges.open == 1 end)
    fleet:admin("/admin/replicas/remove", { replica = fleet.replicas[1].name })
    for i = 1, 2 do assert.equal(200, clients[i]:finish(3).status) end
    assert.equal(1, hits(fleet, "timeouts.connect_ms"))
    assert.equal(1, #fleet:admin("/admin/replicas").replicas) -- its connections have gone, too
  end)

  it("is named when nobody else can take the request", function()
    local fleet = start({ config = { timeouts = { connect_ms = 300 } } })
    make_black_hole(fleet.replicas[1])
    local err = check.api_error(fleet:chat("Hello"), 502, "all_replicas_failed")
    assert.is_truthy(err.message:find("connect_timeout", 1, true))
  end)

  it("may be given up sooner by a request's own header", function()
    local fleet = start({ replicas = { {}, { script = Replica.answers() } } })
    make_black_hole(fleet.replicas[1])
    for _ = 1, 2 do
      local began = loop.now()
      assert.equal(200, fleet:chat("Hello", nil, { "x-kvroute-connect-timeout-ms: 150" }).status)
      assert.is_true(loop.now() - began < 1)
    end
    assert.equal(1, hits(fleet, "timeouts.connect_ms"))
  end)
end)

describe("the first byte of an answer", function()
  after_each(Fleet.finish)

  it("that is late moves the request once, not to every replica", function()
    local fleet = start({ replicas = 3, config = { timeouts = { first_byte_ms = 250 } } })
    local answer = fleet:chat("Hello")
    local err = check.api_error(answer, 504, "first_byte_timeout")
    assert.is_truthy(err.message:find("timeouts.first_byte_ms", 1, true))
    assert.is_truthy(answer:header("x-kvroute-request-id"))
    local asked = 0
    for _, each in ipairs(fleet.replicas) do
      asked = asked + each:count()
      for _, exchange in ipairs(each.exchanges) do exchange:wait_gone(1) end
    end
    assert.equal(2, asked)
    local row = fleet:row(1)
    assert.equal(1, row.moves)
    assert.equal("first_byte_timeout", row.error)
    assert.equal(504, row.status)
    assert.equal(2, hits(fleet, "timeouts.first_byte_ms"))
    -- It is no proof that a replica is down.
    assert.equal(3, fleet:admin("/admin/status").replicas.in_rotation)
  end)

  it("that is late with nobody else to ask: 504, and its name", function()
    local fleet = start({ config = { timeouts = { first_byte_ms = 250 } } })
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = fleet.replicas[1]:take()
    exchange:stream() -- a head is no byte of the body
    check.api_error(client:finish(2), 504, "first_byte_timeout")
    exchange:wait_gone(1)
    assert.is_nil(fleet:row(1).moves)
  end)

  it("that is late on one replica may come from another", function()
    local fleet = start({ replicas = 2, config = { timeouts = { first_byte_ms = 250 } } })
    local client = fleet:connect()
    client:begin(chat_request("Hello"))
    loop.wait(function() return fleet.replicas[1]:count() + fleet.replicas[2]:count() == 2 end, 2)
    local last = fleet.replicas[1].exchanges[1]:gone() and fleet.replicas[2] or fleet.replicas[1]
    last:take():reply()
    assert.equal(200, client:finish().status)
    assert.equal(last.name, fleet:row(1).replica)
  end)
end)

describe("an answer that falls silent", function()
  after_each(Fleet.finish)

  it("is cut after timeouts.idle_ms and never asked for again", function()
    local fleet = start({ replicas = 2, config = { timeouts = { idle_ms = 250 } } })
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    loop.wait(function() return fleet.replicas[1]:count() + fleet.replicas[2]:count() == 1 end)
    local exchange = fleet.replicas[1].exchanges[1] or fleet.replicas[2].exchanges[1]
    exchange:stream()
    for _ = 1, 4 do -- longer in all than the limit
      exchange:event("x")
      loop.sleep(0.1)
    end
    assert.is_nil(exchange:gone())
    assert.equal("reset", client:wait_end(2))
    exchange:wait_gone(1)
    local row = fleet:row(1)
    assert.equal("idle_timeout", row.error)
    assert.equal("dropped", row.outcome)
    assert.is_nil(row.moves)
    assert.equal(1, fleet.replicas[1]:count() + fleet.replicas[2]:count())
    assert.equal(1, hits(fleet, "timeouts.idle_ms"))
  end)

  it("because its client does not read is not silent", function()
    local fleet = start({ config = { timeouts = { idle_ms = 1000 } } })
    local client = fleet:connect(4096)
    client:begin(chat_request("Hello", { stream = true }))
    client:pause()
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    local bytes = 0
    while hits(fleet, "limits.stream_buffer_bytes") == 0 do
      exchange:chunk(("x"):rep(10000))
      bytes = bytes + 10000
      assert.is_true(bytes < 20000000)
    end
    loop.sleep(2) -- nothing moves for far longer than the limit
    assert.is_nil(client.connection.ended)
    client:resume()
    client:wait_body(bytes, 5)
    loop.sleep(0.3) -- the replica has not been silent for longer than this
    exchange:finish()
    assert.equal(200, client:finish().status)
    assert.equal("success", fleet:row(1).outcome)
  end)
end)

describe("a request as a whole", function()
  after_each(Fleet.finish)

  it("may take timeouts.total_ms, before its answer", function()
    local fleet = start({ replicas = 2, config = { timeouts = { total_ms = 300 } } })
    local err = check.api_error(fleet:chat("Hello"), 504, "total_timeout")
    assert.is_truthy(err.message:find("timeouts.total_ms, 300 ms", 1, true))
    assert.equal(1, fleet.replicas[1]:count() + fleet.replicas[2]:count())
    assert.equal("total_timeout", fleet:row(1).error)
  end)

  it("and during it", function()
    local fleet = start({ config = { timeouts = { total_ms = 300 } } })
    local client = fleet:connect()
    client:begin(chat_request("Hello", { stream = true }))
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    local began = loop.now()
    while not client.connection.ended and loop.now() - began < 3 do
      exchange:event("x")
      loop.sleep(0.02)
    end
    assert.equal("reset", client.connection.ended)
    assert.equal("total_timeout", fleet:row(1).error)
  end)

  it("and while it waits for a replica", function()
    local fleet = start({ replicas = { { settings = { capacity = 1 } } }, config = {
      queue = { max = 4 },
    } })
    local running = fleet:connect()
    running:begin(chat_request("running"))
    local exchange = fleet.replicas[1]:take()
    check.api_error(fleet:chat("waits", nil, { "x-kvroute-timeout-ms: 200" }), 504, "total_timeout")
    exchange:reply()
    assert.equal(200, running:finish().status)
    assert.equal(1, fleet.replicas[1]:count())
  end)
end)

describe("a request's own time-outs", function()
  after_each(Fleet.finish)

  -- How long it takes until a request to a silent replica is given up.
  local function given_up(fleet, headers)
    local began = loop.now()
    local answer = fleet:chat("Hello", nil, headers)
    assert.equal(504, answer.status)
    return loop.now() - began
  end

  it("shorten what is configured, and lengthen it up to timeouts.by_header_max_ms", function()
    local fleet = start({ config = { timeouts = { total_ms = 600, by_header_max_ms = 900 } } })
    local shorter = given_up(fleet, { "X-KVRoute-Timeout-MS: 150" })
    local same = given_up(fleet)
    local longer = given_up(fleet, { "x-kvroute-timeout-ms: 60000" })
    assert.is_true(shorter >= 0.14 and shorter < same, "shorter: " .. shorter)
    assert.is_true(same >= 0.59 and same < longer, "same: " .. same)
    assert.is_true(longer >= 0.89 and longer < 5, "longer: " .. longer)
  end)

  it("may only shorten where that is not set, or set what is off", function()
    local fleet = start({ config = { timeouts = { total_ms = 1000 } } })
    local took = given_up(fleet, { "x-kvroute-timeout-ms: 60000" })
    assert.is_true(took >= 0.99 and took < 5, "total: " .. took)
    given_up(fleet, { "x-kvroute-first-byte-timeout-ms: 100" })
    assert.equal("first_byte_timeout", fleet:row(2).error)
  end)

  it("are refused when they are none, and never sent on", function()
    local fleet = start({ script = Replica.answers() })
    for i, value in ipairs({ "soon", "-5", "0", "1.5", "99999999999", "" }) do
      local answer = fleet:chat("Hello", nil, { "x-kvroute-timeout-ms: " .. value })
      local err = check.api_error(answer, 400, "invalid_header")
      assert.is_truthy(err.message:find("x-kvroute-timeout-ms", 1, true))
      assert.equal(400, fleet:row(i).status)
    end
    assert.equal(200, fleet:chat("Hello", nil, { "x-kvroute-timeout-ms: 5000",
      "x-kvroute-idle-timeout-ms: 5000", "x-kvroute-slo-ttft-ms: 100", "x-other: 1" }).status)
    local request = fleet.replicas[1]:take().request
    for _, header in ipairs(request.headers) do
      assert.is_nil(header[1]:lower():find("^x%-kvroute%-"), header[1])
    end
    assert.equal("1", request:header("x-other"))
  end)
end)
