-- `kvroute ctl`: what it says, in how much room, and what it exits with.
local cjson = require("cjson")
local Command = require("e2e.support.command")
local Fleet = require("e2e.support.fleet")
local Replica = require("e2e.support.replica")
local loop = require("e2e.support.loop")

local DONE, REFUSED = Command.DONE, Command.REFUSED
local USAGE, UNREACHABLE = Command.USAGE, Command.UNREACHABLE
local has = Command.has

-- `kvroute ctl` with the words of `arguments`.
local function begin_ctl(fleet, arguments, env, directory)
  local argv = { "ctl" }
  for word in arguments:gmatch("%S+") do argv[#argv + 1] = word end
  return Command.start(fleet, argv, env, directory)
end

local function ctl(...)
  return Command.finish(begin_ctl(...))
end

local function shows(...)
  return Command.said(ctl(...))
end

-- The words of the line that begins with this one.
local function line_of(text, first)
  for line in text:gmatch("[^\n]+") do
    local words = {}
    for word in line:gmatch("%S+") do words[#words + 1] = word end
    if words[1] == first then return words end
  end
end

describe("kvroute ctl", function()
  after_each(Fleet.finish)

  it("shows the state of everything", function()
    local fleet = Fleet.start({ replicas = 2, config = { policy = "round_robin" } })
    local a, b = fleet.replicas[1], fleet.replicas[2]
    a.script, b.script = Replica.answers(), Replica.answers()
    for _ = 1, 3 do assert.equal(200, fleet:chat("x").status) end
    assert.equal(404, fleet:chat("x", { model = "nobody" }).status)
    a.script = nil
    assert.equal(200, fleet:admin_answer("/admin/replicas/drain", { replica = b.name }).status)
    a.taken = a:count()
    local client, exchange = fleet:begin_stream(a)

    local status = shows(fleet, "status")
    has(status, "2 members, 1 in rotation, 0 down, 1 draining; 1 in flight")
    has(status, "round_robin, generation 1")
    has(status, "success 3")
    has(status, "36 prompt (0.0 % cached)")
    has(status, "- of 0 predicted tokens")
    has(status, " reserved of 64.0 MiB")
    has(status, "model_not_found 1")
    has(status, fleet.address)
    local replicas = shows(fleet, "replicas")
    assert.same({ a.name, "up", "1", "1" }, { unpack(line_of(replicas, a.name), 1, 4) })
    assert.same({ b.name, "up+draining", "1", "0" }, { unpack(line_of(replicas, b.name), 1, 4) })
    local scripts = shows(fleet, "scripts")
    assert.same({ "policy", "round_robin", "1" }, { unpack(line_of(scripts, "policy"), 1, 3) })
    has(scripts, fleet.policies .. "/round_robin.lua")
    has(shows(fleet, "index"), "no script in force uses it")
    local requests = shows(fleet, "requests")
    has(requests, "streaming")
    has(requests, "~" .. fleet:admin("/admin/requests").requests[1].id:sub(-15) .. " ")
    has(shows(fleet, "log warn"), "warn")
    local code, page = ctl(fleet, "metrics")
    assert.equal(DONE, code)
    has(page, "\nkvroute_requests_open 1\n")
    exchange:finish()
    client:finish()
  end)

  it("passes the JSON on for programs, errors too", function()
    local fleet = Fleet.start({ replicas = 1 })
    for _, name in ipairs({ "status", "replicas", "scripts", "index", "requests" }) do
      local code, out = ctl(fleet, name .. " --json")
      assert.equal(DONE, code)
      local answer = fleet:admin("/admin/" .. name)
      for key in pairs(answer) do assert.is_not_nil(cjson.decode(out)[key], name .. " " .. key) end
    end
    local code, out, err = ctl(fleet, "-j drain nobody:1")
    assert.equal(REFUSED, code)
    assert.equal("not_found", cjson.decode(out).error.code)
    has(err, "nobody:1")
    code, out = ctl(fleet, "--json policy round_robin")
    assert.equal(DONE, code)
    assert.equal("round_robin", cjson.decode(out).scripts[1].name)
  end)

  it("changes the fleet", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers() })
    local added = Replica.start({ script = Replica.answers() })
    Fleet.write(fleet.folder .. "/key", "sk-from-a-file\n")
    local settings = "weight=2.5 capacity=7 models=special,other"
    local out = shows(fleet, ("add %s %s key=@%s/key"):format(added.url, settings, fleet.folder))
    has(out, added.name)
    loop.wait(function() return fleet:replica_state(added.name).operational == "up" end, 2, "up")
    local state = fleet:replica_state(added.name)
    assert.same({ 2.5, 7, 2, true }, { state.weight, state.capacity, state.models, state.has_key })
    assert.equal(200, fleet:chat("x", { model = "special" }).status)
    local key
    for _, header in ipairs(added:take().request.headers) do
      if header[1]:lower() == "authorization" then key = header[2] end
    end
    assert.equal("Bearer sk-from-a-file", key)

    has(shows(fleet, "weight " .. added.url .. " 0.5"), "weight 0.5")
    has(shows(fleet, "drain " .. added.name), "draining")
    has(shows(fleet, "restore " .. fleet:replica_state(added.name).id), "ready")
    has(shows(fleet, "remove " .. added.name .. " --wait 1"), "is empty")
    assert.is_nil(fleet:replica_state(added.name))
  end)

  it("waits for a drained replica to become empty", function()
    local fleet = Fleet.start({ replicas = 1 })
    local replica = fleet.replicas[1]
    local client, exchange = fleet:begin_stream(replica)
    local code, out, err = ctl(fleet, "drain " .. replica.name .. " --wait 0.3")
    assert.equal(REFUSED, code)
    has(out, "draining, weight 1, 1 in flight")
    has(err, "1 in flight after 0.3 s")
    local waiting = begin_ctl(fleet, "drain --wait 20 " .. replica.name)
    waiting:wait_line("(draining)", 5)
    loop.sleep(0.2)
    assert.is_true(waiting:alive())
    exchange:finish()
    client:finish()
    assert.same({ "exited", DONE }, { waiting:wait(3) })
    has(waiting:stdout(), replica.name .. " is empty")

    -- What is removed can be waited for as well.
    shows(fleet, "restore " .. replica.name)
    client, exchange = fleet:begin_stream(replica)
    waiting = begin_ctl(fleet, "remove --wait 20 " .. replica.name)
    waiting:wait_line("(removed)", 5)
    exchange:finish()
    assert.equal(200, client:finish().status)
    assert.same({ "exited", DONE }, { waiting:wait(3) })
  end)

  it("changes the scripts", function()
    local fleet = Fleet.start({
      replicas = 2,
      script = Replica.answers(),
      policies = {
        mine = [[return { api = 1, name = "mine", params = { n = 1, word = "a" },
          pick = function() return kvr.least(), "mine" end }]],
        broken = "return {\n  api = ,\n}",
      },
    })
    has(shows(fleet, "policy mine n=2 word=x=y"), [[n=2 word="x=y"]])
    assert.equal("mine", fleet:chat("x"):header("x-kvroute-policy"))
    has(shows(fleet, "set policy n=3"), [[n=3 word="x=y"]])
    has(shows(fleet, "spill tokens"), "tokens")
    has(shows(fleet, "spill default"), "(none)")
    has(shows(fleet, "canary p2c 0.25"), "25 % of sessions")
    has(shows(fleet, "status"), "25 % of sessions")
    assert.is_nil(shows(fleet, "canary off"):find("% of sessions", 1, true))
    shows(fleet, "reload")

    local code, out, err = ctl(fleet, "policy broken")
    assert.same({ REFUSED, "" }, { code, out })
    has(err, "broken.lua:2:")
    has(err, "policy mine (generation 3) stays in force")
    has(shows(fleet, "scripts"), "broken.lua:2:")
    Fleet.replace(fleet:policy_path("mine"), "nonsense")
    code, out, err = ctl(fleet, "reload")
    assert.same({ REFUSED, "" }, { code, out })
    has(err, "mine.lua:1:")
    assert.equal("mine", fleet:chat("x"):header("x-kvroute-policy"))
  end)

  it("tells which scripts there are, and what is in force", function()
    local rule = 'return { api = 1, name = "mine", spill = function(_, _, i) return i end }'
    local fleet = Fleet.start({ replicas = 1, policies = { ["spill/mine"] = rule } })
    has(shows(fleet, "status"), "0 prompt (- cached)")
    for _, command in ipairs({ "policy", "spill", "scripts" }) do
      local out = shows(fleet, command)
      assert.same({ "policy", "prefix_affinity", "1" }, { unpack(line_of(out, "policy"), 1, 3) })
      has(out, "policies: bounded_session_affinity")
      assert.is_truthy(out:find("%ssmetric\n"), out) -- the last, wherever lines are broken
      has(out, "spill rules: hit_rate load_mean load_min mine off tokens\n")
      assert.is_nil(out:find(" types", 1, true))
    end
    for name, hint in pairs({ P2C = "did you mean p2c?", load_min = "that is a spill rule" }) do
      local code, _, err = ctl(fleet, "policy " .. name)
      assert.equal(REFUSED, code)
      has(err, hint)
    end
  end)

  it("takes a path from where it stands", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers() })
    local text = 'return { api = 1, name = "%s", pick = function() return kvr.least() end }'
    Fleet.write(fleet.folder .. "/local_one.lua", text:format("local_one"))
    Fleet.write(fleet.folder .. "/misnamed.lua", text:format("another"))
    assert.equal(DONE, (ctl(fleet, "policy ./local_one.lua", nil, fleet.folder)))
    local policy = fleet:admin("/admin/scripts").scripts[1]
    assert.equal(fleet.folder .. "/local_one.lua", policy.path)
    assert.equal("local_one", fleet:chat("x"):header("x-kvroute-policy"))
    local code, _, err = ctl(fleet, "policy ./misnamed.lua", nil, fleet.folder)
    assert.equal(REFUSED, code)
    has(err, 'name: must be "misnamed", as its file\'s, is "another"')
    assert.equal("local_one", fleet:chat("x"):header("x-kvroute-policy"))
  end)

  it("counts for each script, not for those before it", function()
    local text = 'return { api = 1, name = "%s", pick = function() return kvr.least() end }'
    local fleet = Fleet.start({
      replicas = 1, script = Replica.answers(),
      policies = { one = text:format("one"), two = text:format("two"), broken = "nonsense" },
      config = { policy = "one" },
    })
    local function counts()
      return { unpack(line_of(shows(fleet, "scripts"), "policy"), 7, 9) }
    end
    for _ = 1, 3 do fleet:chat("x") end
    Fleet.replace(fleet:policy_path("one"), "nonsense")
    loop.wait(function() return counts()[3] == "1" end, 3, "the refusal")
    ctl(fleet, "policy nosuch")
    ctl(fleet, "policy broken")
    assert.same({ "3", "0", "1" }, counts())
    shows(fleet, "policy two")
    assert.same({ "0", "0", "0" }, counts())
    fleet:chat("x")
    assert.same({ "1", "0", "0" }, counts())
    shows(fleet, "policy round_robin")
    local counters = fleet:admin("/admin/scripts").scripts[1].counters
    assert.same({ 4, 2 }, { counters.calls, counters.refusals }) -- of the role: they never fall
  end)

  it("says how a script comes out of quarantine", function()
    local fleet = Fleet.start({
      replicas = 1, script = Replica.answers(), config = { policy = "mine" },
      policies = { mine = [[return { api = 1, name = "mine", pick = function(request)
        if request.prompt_bytes > 0 and request.prompt_bytes < 1000 then error("boom") end
        return kvr.least()
      end }]] },
    })
    for _ = 1, 10 do assert.equal(200, fleet:chat("x").status) end
    local _, told = fleet.router:stderr():gsub(
      "warn policy mine generation 1 failed, more failures are only counted: [^\n]*boom\n", "")
    assert.equal(1, told) -- the first; the tenth is told as quarantine
    local out = shows(fleet, "scripts")
    has(out, "policy is quarantined: the fallback decides until a repaired file is saved")
    has(out, "mine.lua:2: boom")
    assert.same({ "10", "10", "0", "quarantined" }, { unpack(line_of(out, "policy"), 7, 10) })
    has(fleet.router:stderr(), "is quarantined, until a repaired file is saved: ")
  end)

  it("tells refused, misused and unreachable apart", function()
    local fleet = Fleet.start({ replicas = 1 })
    local cases = {
      { REFUSED, "drain nobody:1", '"nobody:1" is no member' },
      { REFUSED, "add http://127.0.0.1:1 weight=heavy", 'not "heavy"' },
      { REFUSED, "add http://127.0.0.1:1 colour=red", '"colour" is not known' },
      { REFUSED, "add https://127.0.0.1:1", "https://127.0.0.1:1" },
      { REFUSED, "policy nobody_wrote_it", "nobody_wrote_it" },
      { REFUSED, "set policy nonsense=1", "nonsense" },
      { REFUSED, "set king a=1", "king" },
      { REFUSED, "canary p2c 1.5", "share" },
      { REFUSED, "log loud", "loud" },
      { UNREACHABLE, "-a " .. fleet.replicas[1].name .. " scripts", "status 404" },
      { USAGE, "", "a command is needed" },
      { USAGE, "frobnicate", '"frobnicate"' },
      { USAGE, "drain", "drain takes REPLICA" },
      { USAGE, "status now", "status takes no argument" },
      { USAGE, "--frobnicate status", "--frobnicate" },
      { USAGE, "status --wait 1", "status does not wait" },
      { USAGE, "drain x:1 --wait soon", "soon" },
      { USAGE, "set policy a", '"a" is not KEY=VALUE' },
      { USAGE, "add http://127.0.0.1:1 =1", '"=1" is not KEY=VALUE' },
      { USAGE, "add http://127.0.0.1:1 key=@/nowhere", "/nowhere" },
      { USAGE, "canary p2c", "NAME SHARE" },
      { USAGE, "canary off 1", "NAME SHARE" },
      { USAGE, "--admin nowhere status", '"nowhere" is not host:port' },
      { UNREACHABLE, "-a 127.0.0.1:1 status", "connection refused" },
      { UNREACHABLE, "-a no.such.host.invalid:1 status", "no.such.host.invalid" },
    }
    fleet.replicas[1].script = Replica.answers({ status = 404, content_type = "text/plain" })
    for _, case in ipairs(cases) do
      local code, out, err = ctl(fleet, case[2])
      assert.equal(case[1], code, case[2] .. "\n" .. err)
      assert.equal("", out)
      has(err, case[3])
    end
    assert.equal(1, #fleet:admin("/admin/replicas").replicas)
    assert.equal("prefix_affinity", fleet:admin("/admin/scripts").scripts[1].name)
  end)

  it("does not take another server for an admin interface", function()
    local fleet = Fleet.start({ replicas = 1 })
    fleet.replicas[1].script = Replica.answers({ body = "{", content_type = "text/html" })
    local code, _, err = ctl(fleet, "-a " .. fleet.replicas[1].name .. " status")
    assert.equal(UNREACHABLE, code)
    has(err, "is not the admin listener of kvroute")
  end)

  it("says that the address of clients is not that of the admin interface", function()
    local fleet = Fleet.start({ replicas = 1 })
    fleet.replicas[1].script = Replica.answers({ status = 404,
      body = { error = { message = "Not Found" } } })
    for _, command in ipairs({ "status", "metrics", "-j scripts" }) do
      local code, out, err = ctl(fleet, "-a " .. fleet.address .. " " .. command)
      assert.equal(UNREACHABLE, code)
      assert.equal("", out)
      has(err, fleet.address .. " is not the admin listener of kvroute: that is admin.listen, "
        .. "127.0.0.1:8081 unless it is set")
    end
  end)

  it("tells why an address can be no replica's", function()
    local fleet = Fleet.start({ replicas = 1 })
    local port, host = "must have a port between 1 and 65535", "must have a host of letters"
    for url, words in pairs({
      ["127.0.0.1:0"] = port, ["127.0.0.1:99999"] = port, ["http://engine:0/"] = port,
      ["engine:+80"] = port, ["a@b:80"] = host, ["user:secret@b:80"] = host,
      ["http://a:b:80"] = host, ["[::z-]:80"] = host, ["[1.2.3]:80"] = "has no IPv6 address in []",
      [("x"):rep(250) .. ":80"] = "is of 253 bytes, at most 240 are possible",
    }) do
      local code, out, err = ctl(fleet, "add " .. url)
      assert.same({ REFUSED, "" }, { code, out })
      has(err, words)
    end
    assert.equal(1, #fleet:admin("/admin/replicas").replicas)
  end)

  it("tells what was refused at the door", function()
    local keys = os.tmpname()
    finally(function() os.remove(keys) end)
    Fleet.write(keys, 'keys = { { name = "a", key = "sk-a", requests_per_minute = 1 } }\n')
    local fleet = Fleet.start({ script = Replica.answers(), config = { client_keys = keys,
      limits = { body_bytes = 4096 } } })
    assert.is_nil(shows(fleet, "status"):find("at the door", 1, true))
    local function ask(key, body)
      return fleet:request({ path = "/v1/chat/completions", body = body or Fleet.chat("x"),
        headers = key and { "Authorization: Bearer " .. key } }).status
    end
    assert.same({ 401, 401, 401 }, { ask(), ask(), ask("sk-b") })
    assert.same({ 200, 400, 413 }, { ask("sk-a"), ask("sk-a", "{"), ask("sk-a", ("x"):rep(5000)) })
    assert.same({ 429 }, { ask("sk-a") })
    has(shows(fleet, "status"),
      "at the door no key 2, unknown key 1, client's limit 1, bad body 1, bad head or size 1\n")
  end)

  it("helps with each command", function()
    local fleet = Fleet.start({ replicas = 0, ready = false })
    local help = shows(fleet, "--help")
    local commands = help:match("Commands:\n(.-)\n\n")
    local count = 0
    for name in commands:gmatch("  (%l+)[^\n]*") do
      count = count + 1
      local own = shows(fleet, name .. " --help")
      has(own, "Usage: kvroute ctl " .. name)
      has(own, "--admin")
      local waits, explains = name == "drain" or name == "remove", name == "explain"
      assert.equal(waits, own:find("--wait", 1, true) ~= nil, name)
      assert.equal(explains, own:find("--header", 1, true) ~= nil, name)
    end
    assert.equal(21, count)
  end)

  it("brings the token along, and does not let names act on a terminal", function()
    local fleet = Fleet.start({
      replicas = { { models = { "bad\27[31mname\r\n" } } },
      config = { admin = { token = "a-long-secret" } },
      ready = false,
    })
    local with = { KVROUTE_TOKEN = "a-long-secret" }
    loop.wait(function()
      local _, out = ctl(fleet, "replicas --json", with)
      return out:find('"operational":"up"', 1, true) and out:find('"models":1', 1, true)
    end, 5, "the replica to be up")
    local client = fleet:connect()
    client:begin(Fleet.chat_request("x", { model = "bad\27[31mname\r\n" }))
    local exchange = fleet.replicas[1]:take()
    local code, out = ctl(fleet, "requests", with)
    assert.equal(DONE, code)
    has(out, "bad?[31mname??")
    exchange:reply()
    assert.equal(200, client:finish().status)

    assert.equal(DONE, (ctl(fleet, "status --token a-long-secret")))
    for _, wrong in ipairs({ "", "a-long-secre", "a-long-secret2" }) do
      local refused, _, err = ctl(fleet, "status", { KVROUTE_TOKEN = wrong })
      assert.equal(REFUSED, refused)
      has(err, "bearer token")
    end
    fleet:stop() -- Fleet.finish would look without the token
  end)
end)
