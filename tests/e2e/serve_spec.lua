-- `kvroute serve` as a command: without a configuration, with one, with a wrong one, installed.
local cjson = require("cjson")
local connection = require("e2e.support.connection")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")
local signal = require("posix.signal")
local unistd = require("posix.unistd")

local folder
local runs

local function begin(argv, directory, env)
  runs = runs + 1
  local path = ("%s/run.%d"):format(folder, runs)
  return process.start(argv, { out = path .. ".out", err = path .. ".err", directory = directory,
    env = env })
end

local ANY = { "-l", "127.0.0.1:0", "-s", "admin.listen=127.0.0.1:0" }

-- Starts serve with these arguments behind those for free ports; nil, and its output, if it ends.
local function serve(arguments, directory, binary, env)
  local argv = { binary or Fleet.binary, "serve" }
  for _, list in ipairs({ ANY, arguments }) do
    for _, argument in ipairs(list) do argv[#argv + 1] = argument end
  end
  local router = begin(argv, directory or folder, env)
  loop.wait(function()
    return router:stdout():find(" admin ", 1, true) or not router:alive()
  end, 5, "serve to start or to fail")
  router.address, router.admin = router:stdout():match("kvroute serving on (%S+).* admin (%S+)\n")
  return router
end

local function assert_ends(router)
  router:signal(signal.SIGTERM)
  assert.same({ "exited", 0 }, { router:wait(5) })
end

-- It refuses to start: with this code, this in its words, and nothing on standard output.
local function assert_refuses(router, code, ...)
  assert.same({ "exited", code }, { router:wait(5) })
  assert.equal("", router:stdout())
  for _, words in ipairs({ ... }) do
    assert.is_truthy(router:stderr():find(words, 1, true), router:stderr())
  end
end

local function answered(address, options)
  local answer
  loop.wait(function()
    answer = http.request(address, options)
    return answer.status == 200
  end, 3, "an answer")
  return answer
end

describe("kvroute serve", function()
  before_each(function() folder, runs = Fleet.new_folder(), 0 end)
  after_each(function()
    Fleet.finish()
    Fleet.remove_folder(folder)
  end)

  it("exits 0 also when it is told to end again and again", function()
    local router = serve({}, nil, nil, process.TRACED)
    local nagging = router:nag()
    assert_ends(router)
    nagging:wait(5)
  end)

  it("answers what has come before it is told to end, read or not", function()
    local one = Replica.start({ script = Replica.answers() })
    local router = serve({ "-r", one.url })
    answered(router.address, Fleet.chat_request("Hello"))
    router:signal(signal.SIGSTOP)
    local clients = {}
    for i = 1, 5 do
      clients[i] = http.connect(router.address)
      clients[i]:begin(Fleet.chat_request("Hello"))
    end
    router:signal(signal.SIGTERM)
    router:signal(signal.SIGCONT)
    for _, client in ipairs(clients) do
      assert.equal(200, client:finish(5).status)
    end
    assert.same({ "exited", 0 }, { router:wait(5) })
  end)

  it("ends at once when it is told to before it serves", function()
    for i = 0, 9 do
      local router = begin({ Fleet.binary, "serve", unpack(ANY) }, folder)
      loop.sleep(i * 0.002)
      router:signal(signal.SIGTERM)
      local how, code = router:wait(5)
      assert.equal(how == "exited" and 0 or signal.SIGTERM, code)
    end
  end)

  it("needs no configuration", function()
    local one, two = Replica.start({ script = Replica.answers() }), Replica.start()
    local router = serve({ "-r", one.url, "--replica", two.url, "--policy", "p2c" })
    two.script = Replica.answers()
    local answer = answered(router.address, Fleet.chat_request("Hello"))
    assert.equal("p2c", answer:header("x-kvroute-policy"))
    local status = cjson.decode(http.request(router.admin, { path = "/admin/status" }):body())
    assert.equal(2, status.replicas.members)
    assert.equal(cjson.null, status.rows)
    assert.is_truthy(router:stderr():find("info replica " .. one.name .. " is up\n", 1, true))
    one:stop()
    loop.wait(function()
      return router:stderr():find("replica " .. one.name .. " is down, was up\n", 1, true)
    end, 5, "the loss to be told")
    assert_ends(router)
  end)

  it("starts without replicas, to be given them later", function()
    local router = serve({})
    assert.equal(503, http.request(router.address, { path = "/readyz" }).status)
    local one = Replica.start({ script = Replica.answers() })
    local added = http.request(router.admin, { path = "/admin/replicas", body = { url = one.url } })
    assert.equal(200, added.status)
    answered(router.address, Fleet.chat_request("Hello"))
    assert_ends(router)
  end)

  it("takes kvroute.lua where it is started, and flags over it", function()
    local one = Replica.start({ script = Replica.answers() })
    Fleet.write(folder .. "/kvroute.lua", ([[
policy = "round_robin"
moves = 1
replicas = { { url = %q } }
]]):format(one.url))
    local router = serve({})
    local answer = answered(router.address, Fleet.chat_request("Hello"))
    assert.equal("round_robin", answer:header("x-kvroute-policy"))
    assert_ends(router)
    router = serve({ "-p", "p2c", "-s", "headers=true" })
    answer = answered(router.address, Fleet.chat_request("Hello"))
    assert.equal("p2c", answer:header("x-kvroute-policy"))
    assert_ends(router)
  end)

  it("listens on several addresses, of both families", function()
    local one = Replica.start({ script = Replica.answers() })
    Fleet.write(folder .. "/kvroute.lua", ([[
listen = { "127.0.0.1:0", "127.0.0.1:0", "[::1]:0" }
admin = { listen = "127.0.0.1:0" }
replicas = { { url = %q } }
]]):format(one.url))
    local router = begin({ Fleet.binary, "serve" }, folder)
    local first, second, third =
      router:wait_line("serving on (127.0.0.1:%d+) (127.0.0.1:%d+) (%[::1%]:%d+) admin", 5)
    assert.not_equal(first, second)
    answered(first, Fleet.chat_request("Hello"))
    answered(second, Fleet.chat_request("Hello"))
    local curl = begin({ "curl", "-s", ("http://%s/healthz"):format(third) })
    curl:wait(5)
    assert.equal("ok\n", curl:stdout())
    assert_ends(router)
  end)

  it("knows a replica by a name that resolves, and calls it so", function()
    local one = Replica.start({ script = Replica.answers() })
    local router = serve({ "-r", "http://localhost:" .. one.port .. "/" })
    local answer = answered(router.address, Fleet.chat_request("Hello"))
    assert.equal("localhost:" .. one.port, answer:header("x-kvroute-replica"))
    assert.equal("localhost:" .. one.port, one:take().request:header("host"))
    assert_ends(router)
  end)

  it("starts with every setting at its least, and at its most", function()
    local schema = assert(loadfile("core/script/config_schema.lua"))()
    -- A share needs a policy that has it.
    local function at(bound, list, prefix, into)
      for _, setting in ipairs(list) do
        local name = prefix .. setting[1]
        if type(setting[2]) == "table" then
          at(bound, setting[2], name .. ".", into)
        elseif setting[bound] and name ~= "canary.share" then
          into[#into + 1] = "-s"
          into[#into + 1] = ("%s=%.17g"):format(name, setting[bound])
        end
      end
      return into
    end
    for _, bound in ipairs({ "min", "max" }) do
      local router = serve(at(bound, schema, "", { "-r", "http://127.0.0.1:9" }))
      assert.is_truthy(router.address, bound .. ": " .. router:stderr())
      assert.equal(200, http.request(router.address, { path = "/healthz" }).status)
      loop.wait(function() -- told once, it might take a day
        router:signal(signal.SIGTERM)
        return not router:alive()
      end, 5, "the end")
      assert.same({ "exited", 0 }, { router.ended, router.status })
    end
  end)

  it("tells what is wrong with a setting: key, value, line", function()
    local function refused(text, ...)
      Fleet.write(folder .. "/wrong.lua", text)
      assert_refuses(serve({ "--config", folder .. "/wrong.lua" }), 2, ...)
    end
    refused('policy = "p2c"\npolcy = "x"\n', "wrong.lua:2: polcy", "policy?")
    refused("\n\nmoves = 99\n", "wrong.lua:3: moves", "99")
    refused('replicas = {\n { url = "ftp://x" },\n}\n', "wrong.lua:2: replicas.1.url", '"ftp://x"')
    refused("health = { interval_ms = '5' }\n", "wrong.lua:1: health.interval_ms", '"5"')
    refused("moves = = 2\n", "wrong.lua:1: ")
    refused('admin = { listen = "0.0.0.0:0" }\n', "admin.token")
    assert_refuses(serve({ "--config", folder .. "/none.lua" }), 2, "none.lua")
    assert_refuses(serve({ "-s", "moves=many" }), 2, "moves", "many")
    assert_refuses(serve({ "-s", "moves" }), 2, "KEY=VALUE")
    assert_refuses(serve({ "--no-such-flag" }), 2, "--no-such-flag")
    assert_refuses(serve({ "-p", "no_such_policy" }), 1, "no_such_policy")
    assert_refuses(serve({ "-r", "http://no-such-host.invalid:80" }), 1, "no-such-host.invalid")
  end)

  it("tells where a setting stands that fits its kind and cannot be had", function()
    local function refused(text, ...)
      Fleet.write(folder .. "/wrong.lua", text)
      local router = serve({ "--config", folder .. "/wrong.lua" })
      assert_refuses(router, 1, ...)
      assert.is_nil(router:stderr():find("refused: ", 1, true), router:stderr()) -- said once
    end
    refused('\npolicy = "p2"\n', "wrong.lua:2: policy: there is no policy p2: did you mean p2c?")
    refused('\npolicy = "P2C"\n', "wrong.lua:2: policy: ", "did you mean p2c?")
    refused('policy = "unlike_any"\n', "wrong.lua:1: policy: ",
      "known: bounded_session_affinity, ", ", smetric\n")
    refused('policy = "load_min"\n', "wrong.lua:1: policy: ", "that is a spill rule")
    refused('spill = "p2c"\n', "wrong.lua:1: spill: there is no spill rule p2c: that is a policy")
    refused('params = {\n  foo = 1 }\n', "wrong.lua:2: params.foo: ", "no param named foo")
    refused('policy = "prefix_affinity"\nparams = { spill = "nosuch" }\n',
      "wrong.lua:2: params.spill: there is no spill rule nosuch")
    refused('spill = "tokens"\nspill_params = {\n nosuch = 1 }\n',
      "wrong.lua:3: spill_params.nosuch: ")
    refused('canary = { share = 0.5,\n policy = "nosuch" }\n', "wrong.lua:2: canary.policy: ")
    refused('shadow = { "p2c",\n "nosuch" }\n', "wrong.lua:2: shadow.2.policy: there is no policy")
    refused('shadow = { { policy = "p2c",\n params = { foo = 1 } } }\n',
      "wrong.lua:2: shadow.1.params.foo: ", "no param named foo")
    refused('\n\npolicies_dir = "/nowhere/at/all"\n', "wrong.lua:3: policies_dir: ",
      "/nowhere/at/all: No such file")
    refused('rows.path = "/nowhere/rows"\n', "wrong.lua:1: rows.path: ", "/nowhere/rows")
    refused('client_keys = "/nowhere/keys"\n', "wrong.lua:1: client_keys: ", "/nowhere/keys")
    refused('replicas = {\n { url = "http://127.0.0.1:1" },\n { url = "http://127.0.0.1:1" } }\n',
      "wrong.lua:3: replicas.2.url: ")
    refused('replicas = {\n { url = "http://no-such-host.invalid:80" } }\n',
      "wrong.lua:2: replicas.1.url: ", "no-such-host.invalid")
    local router = serve({ "-s", "policy=nosuch" })
    assert_refuses(router, 1, "kvroute serve: policy: there is no policy nosuch")
  end)

  -- The last line of a start that failed for what the machine would not give, and its only other
  -- lines: scripts in force.
  local function assert_fails(line, router)
    assert_refuses(router, 1)
    local said = {}
    for each in router:stderr():gmatch("[^\n]+") do
      if not each:find(" in force: ", 1, true) then said[#said + 1] = each end
    end
    assert.same({ "kvroute serve: " .. line }, said)
  end

  it("tells in a line what it was not given: descriptors, a port, a file", function()
    assert_fails("ulimit -n 20: at least 64 descriptors are needed", begin({ "/bin/sh", "-c",
      'ulimit -n 20; exec "$@"', "sh", Fleet.binary, "serve", unpack(ANY) }))
    local fd, port = connection.listen(0)
    local address = "127.0.0.1:" .. port
    assert_fails(("admin.listen: cannot listen on %s: address already in use"):format(address),
      begin({ Fleet.binary, "serve", "-l", "127.0.0.1:0", "-s", "admin.listen=" .. address }))
    assert_fails(("listen.1: cannot listen on %s: address already in use"):format(address),
      serve({ "-l", address }))
    unistd.close(fd)
    assert_fails(("admin.listen: cannot listen on %s: address already in use"):format(address),
      begin({ Fleet.binary, "serve", "-l", address, "-s", "admin.listen=" .. address }))
    Fleet.write(folder .. "/twice.lua",
      ("\nlisten = { %q,\n %q }\n"):format(address, address))
    assert_fails(("%s/twice.lua:3: listen.2: cannot listen on %s: address already in use"):format(
      folder, address), begin({ Fleet.binary, "serve", "-c", folder .. "/twice.lua" }))
    -- Files that root cannot have either.
    local below = folder .. "/twice.lua/rows"
    assert_fails(("rows.path: cannot write rows to %s: Not a directory"):format(below),
      serve({ "-s", "rows.path=" .. below }))
    assert_fails(("rows.path: cannot write rows to %s: Is a directory"):format(folder),
      serve({ "-s", "rows.path=" .. folder }))
    assert_fails(("client_keys: cannot read %s: it is a directory"):format(folder),
      serve({ "-s", "client_keys=" .. folder }))
  end)

  it("says so when a file sets nothing, and when there is no replica", function()
    Fleet.write(folder .. "/idle.lua", 'return { policy = "p2c" }\n')
    assert_refuses(serve({ "--config", folder .. "/idle.lua" }), 2, "idle.lua:1: returns a value")
    local router = serve({})
    assert.is_truthy(router:stderr():find("warn no replicas: ", 1, true), router:stderr())
    assert_ends(router)
    router = serve({ "-r", "http://127.0.0.1:1" })
    assert.is_nil(router:stderr():find("no replicas", 1, true))
    assert_ends(router)
  end)

  it("does not share a port", function()
    local router = serve({})
    local second = begin({ Fleet.binary, "serve", "-l", router.address, "-s",
      "admin.listen=127.0.0.1:0" }, folder)
    assert_refuses(second, 1, router.address)
    assert_ends(router)
  end)

  it("explains itself", function()
    for words, pattern in pairs({
      ["serve --help"] = "--config", ["--help"] = "serve", ["--version"] = "kvroute %d",
      ["serve --help-config"] = "replicas%[i%]%.url .*timeouts%.drain_ms",
    }) do
      local argv = { Fleet.binary }
      for word in words:gmatch("%S+") do argv[#argv + 1] = word end
      local program = begin(argv)
      assert.same({ "exited", 0 }, { program:wait(5) })
      assert.is_truthy(program:stdout():find(pattern), words)
      assert.equal("", program:stderr())
    end
    assert_refuses(begin({ Fleet.binary }), 2, "Usage:")
    assert_refuses(begin({ Fleet.binary, "no-such-command" }), 2, "no-such-command")
  end)

  it("helps with every command, by -h as by --help, within 100 columns", function()
    local function told(...)
      local program = begin({ Fleet.binary, ... })
      assert.same({ "exited", 0 }, { program:wait(20) })
      local text = program:stdout()
      for line in text:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
      return text
    end
    local count = 0
    for command in told("--help"):match("Commands:\n(.-)\n\n"):gmatch("  (%l+) [^\n]*") do
      local text = told(command, "--help")
      assert.is_truthy(text:find("^Usage: kvroute " .. command), text)
      assert.equal(text, told(command, "-h"))
      count = count + 1
    end
    assert.equal(13, count)
    for _, words in ipairs({ { "serve", "--help-config" }, { "load", "--help-workload" },
      { "replica", "--faults" }, { "import", "servegen", "-h" } }) do
      told(unpack(words))
    end
  end)

  it("built elsewhere, has the policies of its sources", function()
    local copy = begin({ "cp", Fleet.binary, folder .. "/kvroute" })
    assert.same({ "exited", 0 }, { copy:wait(5) })
    local router = serve({}, "/", folder .. "/kvroute")
    local scripts = cjson.decode(http.request(router.admin, { path = "/admin/scripts" }):body())
    assert.equal(unistd.getcwd() .. "/policies", scripts.policies_dir)
    assert_ends(router)
  end)

  -- Installs into the test's folder, with a policy that only this place has.
  local function install()
    local prefix = folder .. "/prefix"
    local command = begin({ "cmake", "--install", Fleet.build, "--prefix", prefix })
    assert.same({ "exited", 0 }, { command:wait(20) })
    local text = Fleet.read(prefix .. "/share/kvroute/policies/round_robin.lua")
    Fleet.write(prefix .. "/share/kvroute/policies/only_here.lua",
      (text:gsub('name = "round_robin"', 'name = "only_here"')))
    return prefix
  end

  it("installed, works from anywhere", function()
    local prefix = install()
    local one = Replica.start({ script = Replica.answers() })
    local router = serve({ "-r", one.url, "-s", "spill=tokens" }, "/", prefix .. "/bin/kvroute")
    answered(router.address, Fleet.chat_request("Hello"))
    local scripts = cjson.decode(http.request(router.admin, { path = "/admin/scripts" }):body())
    assert.equal(prefix .. "/share/kvroute/policies", scripts.policies_dir)
    for _, words in ipairs({ { "policy", "only_here" }, { "status" } }) do
      local ctl = begin({ prefix .. "/bin/kvroute", "ctl", "-a", router.admin, unpack(words) },
        "/")
      assert.same({ "exited", 0 }, { ctl:wait(5) }, ctl:stderr())
      assert.is_truthy(ctl:stdout():find("only_here", 1, true), ctl:stdout())
    end
    assert_ends(router)
  end)

  it("installed, runs experiments from anywhere", function()
    local prefix = install()
    Fleet.write(folder .. "/small.lua", [=[
local lab = require("kvroute")
return lab.experiment {
  name = "small",
  question = "is all there?",
  fleet = lab.fleet.simulated { profile = "rtx3090-8b-awq", replicas = 2 },
  workload = function() return lab.workload.kvroute { users = 4 } end,
  policies = { "only_here", "prefix_affinity" },
  measure = { seconds = 20 },
  slo = { ttft_ms = 990, itl_ms = 24 },
  seeds = 1,
  show = { metrics = { "ttft_p50_ms" } },
}
]=])
    local run = begin({ prefix .. "/bin/kvroute", "run", "small.lua", "--jobs", "1" }, folder)
    run:wait(30)
    assert.equal("exited", run.ended)
    assert.equal(0, run.status, run:stderr())
    assert.is_truthy(run:stdout():find("only_here", 1, true), run:stdout())
  end)
end)
