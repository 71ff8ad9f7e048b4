-- The router's beginning, its end, and one router after another: what clients notice of it.
local http = require("e2e.support.http")
local connection = require("e2e.support.connection")
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local pulse = require("kvroute.pulse")
local Replica = require("e2e.support.replica")
local signal = require("posix.signal")
local unistd = require("posix.unistd")

local chat_request = Fleet.chat_request

local function assert_last_answer(answer)
  assert.equal(200, answer.status)
  assert.equal("close", answer:header("connection"))
end

local function is_refused(fleet)
  local ok, client = pcall(fleet.connect, fleet)
  if ok then client:close() end
  return not ok
end

local function ready(fleet)
  local answer = fleet:request({ path = "/readyz" })
  return answer.status, answer:body()
end

describe("a router that begins", function()
  after_each(Fleet.finish)

  -- One replica, whose answer to a probe is up to `probed`.
  local function start(probed)
    local answer = Replica.answers()
    return Fleet.start({
      ready = false, config = { health = { path = "/probe", timeout_ms = 10000 } },
      script = function(exchange)
        if exchange.request.target == "/probe" then probed(exchange) else answer(exchange) end
      end,
    })
  end

  it("takes no request before it knows where to send it", function()
    local fleet = start(function(exchange)
      loop.after(0.2, function() exchange:reply() end)
    end)
    assert.equal(200, fleet:chat("Hello").status)
  end)

  it("takes them all the same when there is nowhere, or nothing is heard of it", function()
    for _, probed in ipairs({ function(exchange) exchange:reset() end, function() end }) do
      assert.equal(503, start(probed):chat("Hello").status)
    end
  end)
end)

-- Takes its time for one request, so that others may come meanwhile.
local SLOW = [[
local P = { api = 1, name = "slow" }
function P.pick(request)
  local sum = 0
  if request.max_tokens == 4321 then
    for i = 1, 6e7 do sum = (sum + i) % 7 end
  end
  return sum >= 0 and kvr.least() or nil, "slow"
end
return P
]]

describe("a router that ends", function()
  after_each(Fleet.finish)

  it("answers those that have connected and were not accepted yet", function()
    local fleet = Fleet.start({
      script = Replica.answers(), policies = { slow = SLOW },
      config = { policy = "slow", scripts = { budget_ms = 60000 } },
    })
    local first = fleet:connect()
    assert.equal(200, first:request(chat_request("Hello")).status)
    fleet.router:signal(signal.SIGSTOP)
    loop.wait(function() return pulse.read(fleet.router.pid) == "T" end, 5, "it to stand still")
    local _, before = pulse.read(fleet.router.pid)
    first:begin(chat_request("Hello", { max_tokens = 4321 }))
    fleet:terminate()
    fleet.router:signal(signal.SIGCONT)
    -- It has been told that there is a request and a signal, and is at work on the request.
    loop.wait(function()
      local _, now = pulse.read(fleet.router.pid)
      return now - before >= 0.05
    end, 10, "it to be at work")
    local clients = {}
    for i = 1, 20 do
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Hello"))
    end
    assert.equal(200, first:finish(20).status)
    for _, client in ipairs(clients) do assert_last_answer(client:finish(5)) end
    fleet:stop()
    assert.equal(22, #fleet:rows(22))
  end)

  it("answers once more who has just been answered, or has just come", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      timeouts = { client_parting_ms = 5000 },
    } })
    local answered, fresh = fleet:connect(), fleet:connect()
    assert.equal(200, answered:request(chat_request("Hello")).status)
    fleet:terminate()
    loop.wait(function() return is_refused(fleet) end, 1, "connections to be refused")
    assert_last_answer(answered:request(chat_request("Hello")))
    assert_last_answer(fresh:request(chat_request("Hello")))
    assert.equal("fin", answered:wait_end(1))
    fleet:stop(2)
  end)

  it("waits for them no longer than is likely", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      timeouts = { client_parting_ms = 400 },
    } })
    local client = fleet:connect()
    assert.equal(200, client:request(chat_request("Hello")).status)
    fleet:terminate()
    assert.equal("fin", client:wait_end(3))
    fleet:stop(2)
  end)

  it("says so before it takes no more, where it is given the time", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      timeouts = { unready_ms = 2000 },
    } })
    assert.equal(200, (ready(fleet)))
    local began = loop.now()
    fleet:terminate()
    loop.wait(function() return ready(fleet) == 503 end, 1, "it to say so")
    assert.same({ 503, "draining\n" }, { ready(fleet) })
    local asked = 0
    while loop.now() - began < 0.5 do
      assert.equal(200, fleet:chat("Hello").status)
      asked = asked + 1
    end
    fleet:stop(3)
    assert.is_true(loop.now() - began > 1.9)
    assert.equal(asked, #fleet:rows(asked))
  end)

  it("takes a second signal for an end to that", function()
    local fleet = Fleet.start({ config = { timeouts = { unready_ms = 60000 } } })
    fleet:terminate()
    loop.wait(function() return ready(fleet) == 503 end, 1, "it to say so")
    fleet.router:signal(signal.SIGTERM)
    fleet:stop(2)
  end)
end)

describe("sockets handed over by who starts the router", function()
  local folder, runs, sockets

  before_each(function() folder, runs, sockets = Fleet.new_folder(), 0, {} end)
  after_each(function()
    Fleet.finish()
    for _, fd in ipairs(sockets) do unistd.close(fd) end
    Fleet.remove_folder(folder)
  end)

  local function listening()
    local fd, port = connection.listen(0)
    sockets[#sockets + 1] = fd
    return "127.0.0.1:" .. port
  end

  local function begin(arguments, options)
    runs = runs + 1
    options.out = ("%s/%d.out"):format(folder, runs)
    options.err = ("%s/%d.err"):format(folder, runs)
    return process.start({ Fleet.binary, "serve", "-s", "admin.listen=127.0.0.1:0",
      unpack(arguments) }, options)
  end

  it("are listened on, in place of what is configured", function()
    local one = Replica.start({ script = Replica.answers() })
    local first, admin, second = listening(), listening(), listening()
    local router = begin({ "-r", one.url, "-l", "127.0.0.1:1" },
      { sockets = sockets, socket_names = "a:admin:b" })
    assert.same({ first, second, admin },
      { router:wait_line("serving on (%S+) (%S+) admin (%S+)\n", 5) })
    for _, address in ipairs({ first, second }) do
      assert.equal(200, http.request(address, chat_request("Hello")).status)
    end
    assert.equal(200, http.request(admin, { path = "/admin/status" }).status)
    router:signal(signal.SIGTERM)
    assert.same({ "exited", 0 }, { router:wait(5) })
    assert.is_truthy(connection.connect(first)) -- there, for the next one
  end)

  it("are left alone when they are for another process", function()
    local router = begin({ "-l", "127.0.0.1:0" },
      { env = { LISTEN_PID = "1", LISTEN_FDS = "1" } })
    router:wait_line("serving on 127.0.0.1:%d+ admin", 5)
    router:signal(signal.SIGTERM)
    assert.same({ "exited", 0 }, { router:wait(5) })
  end)

  it("are refused when they are none", function()
    local function refused(words, options)
      local router = begin({}, options)
      assert.same({ "exited", 1 }, { router:wait(5) })
      assert.equal("kvroute serve: " .. words, router:stderr():match("(kvroute serve: .-)\n"))
    end
    local file = assert(io.open(folder .. "/file", "w"))
    local fd = require("posix.stdio").fileno(file)
    refused("descriptor 3, handed over, is no TCP socket", { sockets = { fd } })
    refused("LISTEN_FDS=11: 0 to 9 are possible", { sockets = { fd }, more = 10 })
    listening()
    refused("LISTEN_FDNAMES: two sockets are named admin",
      { sockets = { sockets[1], sockets[1] }, socket_names = "admin:admin" })
    file:close()
  end)

  it("lose no request when one router takes the place of another", function()
    local urls = Load.replicas(2)
    local address = listening()
    listening()
    local function start()
      local router = begin({ "-r", urls[1], "-r", urls[2] },
        { sockets = sockets, socket_names = ":admin" })
      router:wait_line("serving on", 5)
      return router
    end
    local function stop(router)
      router:signal(signal.SIGTERM)
      assert.same({ "exited", 0 }, { router:wait(10) })
    end
    local router = start()
    local load = Load.start({ address = address, folder = folder }, { rate = 400, seconds = 6 })
    local restarts = 0
    while load:running() do
      if restarts % 2 == 0 then -- the new one beside the old, or after it
        local before = router
        router = start()
        stop(before)
      else
        stop(router)
        router = start()
      end
      restarts = restarts + 1
      loop.sleep(0.2)
    end
    local result = load:finish()
    assert.equal(0, result.failed)
    assert.equal(result.sent, result.answered)
    assert.is_true(restarts >= 2, restarts .. " restarts")
    stop(router)
  end)
end)
