-- Client keys: who may ask, by what name it is told of, and how much it may have.
local signal = require("posix.signal")
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

local function bearer(key) return { "Authorization: Bearer " .. key } end

local paths = {} -- files of keys

local function finish()
  for _, path in ipairs(paths) do os.remove(path) end
  paths = {}
  Fleet.finish()
end

-- Starts a fleet whose clients have these keys.
local function start(keys, options)
  options = options or {}
  local path = os.tmpname()
  paths[#paths + 1] = path
  Fleet.write(path, "keys = {\n" .. keys .. "\n}\n")
  options.config = options.config or {}
  options.config.client_keys = path
  if options.script == nil then options.script = Replica.answers() end
  local fleet = Fleet.start(options)
  fleet.keys_path = path
  return fleet
end

local function rewrite(fleet, keys)
  Fleet.replace(fleet.keys_path, "keys = {\n" .. keys .. "\n}\n")
end

local two = [[
  { name = "team-a", key = "sk-aaaa-1111" },
  { name = "team-b", key = "sk-bbbb-2222" },]]

describe("a client key", function()
  after_each(finish)

  it("is asked for on every path but /healthz and /readyz", function()
    local fleet = start(two)
    for _, path in ipairs({ "/v1/chat/completions", "/v1/models", "/tokenize", "/" }) do
      local missing = fleet:request({ path = path })
      check.api_error(missing, 401, "missing_api_key")
      assert.equal("Bearer", missing:header("www-authenticate"))
      local err = check.api_error(fleet:request({ path = path, headers = bearer("sk-cccc-3333") }),
        401, "invalid_api_key")
      assert.equal("invalid_request_error", err.type)
    end
    for _, value in ipairs({ "Basic c2s6YWFhYQ==", "Bearer", "Bearer ", "Bearer sk-aaaa-111",
      "Bearer sk-aaaa-11111", "Bearer sk-aaaa-1111 x", "sk-aaaa-1111" }) do
      assert.equal(401, fleet:request({ path = "/v1/models",
        headers = { "Authorization: " .. value } }).status, value)
    end
    assert.equal(0, fleet.replicas[1]:count())
    assert.equal(200, fleet:request({ path = "/healthz" }).status)
    assert.equal(200, fleet:request({ path = "/readyz" }).status)
    local models = fleet:request({ path = "/v1/models", headers = bearer("sk-aaaa-1111") })
    assert.equal(200, models.status)
  end)

  it("is a bearer token or X-Api-Key, gives a name, and goes no further", function()
    local fleet = start(two, { replicas = { { script = Replica.answers(),
      settings = { key = "engine-key" } }, { script = Replica.answers() } },
      config = { policy = "round_robin", rows = { blocks = true } } })
    local ways = { bearer("sk-aaaa-1111"), { "X-API-Key: sk-bbbb-2222" },
      { "authorization: bearer  sk-aaaa-1111" },
      { "Authorization: Basic eDp5", "x-api-key: sk-bbbb-2222" } }
    for _, headers in ipairs(ways) do
      assert.equal(200, fleet:chat("Hello", nil, headers).status)
    end
    local with_key = 0
    for _, each in ipairs(fleet.replicas) do
      for _, exchange in ipairs(each.exchanges) do
        assert.is_nil(exchange.request:header("x-api-key"))
        local authorization = exchange.request:header("authorization")
        assert.equal(each == fleet.replicas[1] and "Bearer engine-key" or nil, authorization)
        with_key = with_key + (authorization and 1 or 0)
      end
    end
    assert.equal(2, with_key)
    local rows = fleet:rows(4)
    assert.same({ "team-a", "team-b", "team-a", "team-b" },
      { rows[1].client, rows[2].client, rows[3].client, rows[4].client })
    assert.equal(2, fleet:metric('kvroute_client_key_requests_total{client="team-a"}'))
    assert.equal(0, fleet:metric('kvroute_client_key_requests_open{client="team-b"}'))
    -- Nowhere is a key told.
    fleet:chat("Hello", nil, bearer("sk-dddd-4444"))
    local told = {
      Fleet.read(fleet.folder .. "/rows.jsonl"), fleet.router:stderr(), fleet.router:stdout(),
      fleet:metrics_page(),
      http.request(fleet.admin_address, { path = "/admin/status" }):body(),
      http.request(fleet.admin_address, { path = "/admin/replicas" }):body(),
    }
    for _, text in ipairs(told) do
      for _, key in ipairs({ "aaaa-1111", "bbbb-2222", "dddd-4444", "engine-key" }) do
        assert.is_nil(text:find(key, 1, true))
      end
    end
  end)

  it("of a client that is turned away leaves a row, and is counted", function()
    local fleet = start(two)
    fleet:chat("Hello")
    fleet:chat("Hello", nil, bearer("nobody"))
    local rows = fleet:rows(2)
    assert.equal("missing_api_key", rows[1].error)
    assert.equal("invalid_api_key", rows[2].error)
    assert.equal(401, rows[2].status)
    assert.equal("dropped", rows[2].outcome)
    assert.is_nil(rows[2].client)
    assert.equal(1, fleet:metric('kvroute_client_key_denied_total{key="absent"}'))
    assert.equal(1, fleet:metric('kvroute_client_key_denied_total{key="unknown"}'))
  end)

  it("is asked for before a body is taken", function()
    local fleet = start(two)
    local client = fleet:connect()
    client:send("POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 30000000\r\n"
      .. "Expect: 100-continue\r\n\r\n")
    local answer = client:expect()
    client:finish(1)
    check.api_error(answer, 401, "missing_api_key")
    assert.is_nil(answer.interim)
    assert.equal("close", answer:header("connection"))
    client:wait_end(3)
    client = fleet:connect()
    local text = http.text(chat_request(("x"):rep(300000), nil, bearer("sk-aaaa-1111")))
    client:send(text:sub(1, 100000))
    loop.sleep(0.02)
    client:send(text:sub(100001))
    client:expect()
    assert.equal(200, client:finish().status)
    assert.equal(1, fleet:metric('kvroute_client_key_requests_total{client="team-a"}'))
  end)
end)

describe("a client's limits", function()
  after_each(finish)

  it("bound its requests at once, and nobody else's", function()
    local fleet = start([[
      { name = "team-a", key = "a", concurrency = 2 },
      { name = "team-b", key = "b" },]], { script = false })
    local clients = {}
    for i = 1, 2 do
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Hello", nil, bearer("a")))
    end
    local first, second = fleet.replicas[1]:take(), fleet.replicas[1]:take()
    local refused = fleet:chat("Hello", nil, bearer("a"))
    local err = check.api_error(refused, 429, "client_concurrency")
    assert.equal("rate_limit_error", err.type)
    assert.equal("1", refused:header("retry-after"))
    assert.is_truthy(err.message:find("team-a", 1, true))
    local other = fleet:connect()
    other:begin(chat_request("Hello", nil, bearer("b")))
    fleet.replicas[1]:take():reply()
    assert.equal(200, other:finish().status)
    first:reply()
    assert.equal(200, clients[1]:finish().status)
    clients[2]:reset()
    second:wait_gone(1)
    fleet:rows(4)
    clients[3] = fleet:connect()
    clients[3]:begin(chat_request("Hello", nil, bearer("a")))
    fleet.replicas[1]:take():reply()
    assert.equal(200, clients[3]:finish().status)
    local row = fleet:rows(5)[1]
    assert.equal("client_concurrency", row.error)
    assert.equal("team-a", row.client)
    assert.equal(1,
      fleet:metric('kvroute_client_key_limited_total{client="team-a",limit="concurrency"}'))
  end)

  it("bound its requests a minute, and say when to come again", function()
    local fleet = start([[ { name = "team-a", key = "a", requests_per_minute = 3 } ]])
    for _ = 1, 3 do assert.equal(200, fleet:chat("Hello", nil, bearer("a")).status) end
    local refused = fleet:chat("Hello", nil, bearer("a"))
    local err = check.api_error(refused, 429, "client_requests_per_minute")
    assert.is_truthy(err.message:find("requests_per_minute of client team-a (3)", 1, true))
    local after = tonumber(refused:header("retry-after"))
    assert.is_true(after >= 55 and after <= 61, "after " .. after)
    assert.equal(3, fleet.replicas[1]:count())
  end)

  it("bound its prompt tokens a minute, as far as they can be told", function()
    local fleet = start([[ { name = "team-a", key = "a", prompt_tokens_per_minute = 1000 } ]])
    local function completion(tokens)
      local ids = {}
      for i = 1, tokens do ids[i] = i end
      return fleet:request({ path = "/v1/completions", headers = bearer("a"),
        body = { model = "test-model", prompt = ids } })
    end
    assert.equal(200, completion(600).status)
    check.api_error(completion(500), 429, "client_prompt_tokens_per_minute")
    assert.equal(200, completion(300).status)
    local never = completion(1001)
    local err = check.api_error(never, 429, "client_prompt_tokens_per_minute")
    assert.is_nil(never:header("retry-after"))
    assert.is_truthy(err.message:find("this prompt alone", 1, true))
    assert.equal(900, fleet:metric('kvroute_client_key_prompt_tokens_total{client="team-a"}'))
  end)
end)

describe("the file of client keys", function()
  after_each(finish)

  it("is in force again when it changes; counts and streams go on", function()
    local fleet = start([[
      { name = "team-a", key = "old", requests_per_minute = 2 },
      { name = "team-b", key = "b" },]], { script = false })
    local stream = fleet:connect()
    stream:begin(chat_request("Hello", { stream = true }, bearer("old")))
    local exchange = fleet.replicas[1]:take()
    exchange:stream()
    exchange:event("one")
    rewrite(fleet, [[ { name = "team-a", key = "new", requests_per_minute = 2 } ]])
    loop.wait(function()
      return fleet:request({ path = "/v1/models", headers = bearer("new") }).status == 200
    end, 2, "the new key")
    assert.equal(401, fleet:request({ path = "/v1/models", headers = bearer("old") }).status)
    assert.equal(401, fleet:request({ path = "/v1/models", headers = bearer("b") }).status)
    local client = fleet:connect()
    client:begin(chat_request("Hello", nil, bearer("new")))
    fleet.replicas[1]:take():reply()
    assert.equal(200, client:finish().status)
    check.api_error(fleet:chat("Hello", nil, bearer("new")), 429, "client_requests_per_minute")
    exchange:finish()
    assert.equal(200, stream:finish().status)
    for _, row in ipairs(fleet:rows(3)) do
      if row.status ~= 401 then assert.equal("team-a", row.client) end
    end
  end)

  it("may drop a client whose request is still open", function()
    local fleet = start(two, { script = false })
    local client = fleet:connect()
    client:begin(chat_request("Hello", nil, bearer("sk-aaaa-1111")))
    local exchange = fleet.replicas[1]:take()
    rewrite(fleet, [[ { name = "team-b", key = "sk-bbbb-2222" } ]])
    loop.wait(function()
      return fleet:request({ path = "/v1/models", headers = bearer("sk-aaaa-1111") }).status == 401
    end, 2, "the key to be gone")
    exchange:reply()
    assert.equal(200, client:finish().status)
    for _, row in ipairs(fleet:rows(2)) do
      if row.status == 200 then assert.equal("team-a", row.client) end
    end
    assert.is_nil(fleet:metric('kvroute_client_key_requests_total{client="team-a"}'))
  end)

  it("changes nothing when it is wrong; SIGHUP reads it too", function()
    local fleet = start(two)
    local wrong = {
      { "{ name = 'x' }", "keys.1.key: is missing" },
      { "{ name = 'x', key = 'has blank' }", "keys.1.key: must be a text of visible characters" },
      { "{ name = 'a b', key = 'x' }", "keys.1.name: must be of letters" },
      { "{ name = 'x', key = 'y' }, { name = 'x', key = 'z' }", 'keys.2.name: "x" is keys.1, too' },
      { "{ name = 'x', key = 'same-1' }, { name = 'y', key = 'same-1' }",
        "keys.2.key: is that of keys.1" },
      { "{ name = 'x', key = 'y', requests = 5 }", "keys.1.requests: no such setting" },
      { "{ name = 'x', key = 'y' ", "'}' expected" },
      { "{ name = 'x', key = 'y', concurrency = -1 }", "keys.1.concurrency: must be an integer" },
    }
    for i, each in ipairs(wrong) do
      rewrite(fleet, each[1])
      loop.wait(function()
        return (fleet:metric("kvroute_client_key_file_refusals_total") or 0) >= i
      end, 2, "refusal " .. i)
      assert.is_truthy(fleet.router:stderr():find(each[2], 1, true), each[2])
      assert.equal(200, fleet:chat("Hello", nil, bearer("sk-aaaa-1111")).status)
    end
    assert.is_nil(fleet.router:stderr():find("same-1", 1, true))
    os.remove(fleet.keys_path)
    local refusals = fleet:metric("kvroute_client_key_file_refusals_total")
    fleet.router:signal(signal.SIGHUP)
    loop.wait(function()
      return fleet:metric("kvroute_client_key_file_refusals_total") > refusals
    end, 2, "the refusal of a missing file")
    assert.equal(200, fleet:chat("Hello", nil, bearer("sk-bbbb-2222")).status)
  end)

  it("must be good at the start", function()
    local path = os.tmpname()
    Fleet.write(path, "keys = { { name = 'x', key = 'secret-9', concurrency = 'many' } }\n")
    local child = process.start({ Fleet.binary, "serve", "--listen", "127.0.0.1:0",
      "--set", "admin.listen=127.0.0.1:0", "--set", "client_keys=" .. path,
      "--set", "policies_dir=policies" },
      { out = path .. ".out", err = path .. ".err" })
    local how, code = child:wait(5)
    assert.equal("exited", how)
    assert.equal(1, code)
    local why = path .. ":1: keys.1.concurrency: must be an integer"
    assert.is_truthy(child:stderr():find(why, 1, true))
    assert.is_nil(child:stderr():find("secret-9", 1, true))
    for _, suffix in ipairs({ "", ".out", ".err" }) do os.remove(path .. suffix) end
  end)
end)
