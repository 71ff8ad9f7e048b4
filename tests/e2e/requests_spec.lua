-- Every file of tests/data/requests through the ingress: what its README says must happen. What the
-- scan makes of the bodies is a unit test's; here it is what reaches a replica, and who is believed
-- to hold what.
local cjson = require("cjson")
local check = require("e2e.support.check")
local Envelope = require("e2e.support.envelope")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

-- Where the README leaves a choice, this is ours: only what is no JSON is refused.
local EITHER = {
  ["s13-empty-messages"] = "verbatim",
  ["s14-null-user-zero-max"] = "verbatim",
  ["s18-duplicate-model-key"] = "verbatim",
  ["s19-lone-surrogate"] = "verbatim",
  ["s20-bom-and-blanks"] = "verbatim",
}

local BLOCK = 16

local function start(script)
  local any = { script = script or Replica.answers(), settings = { any_model = true } }
  return Fleet.start({ replicas = { any, any }, config = { index = { block_bytes = BLOCK } } })
end

local function request_of(envelope, framing)
  local headers = {}
  for name, value in pairs(envelope.headers) do
    if name ~= "content-type" then headers[#headers + 1] = name .. ": " .. value end
  end
  local request = { method = envelope.method, path = envelope.path, headers = headers }
  if framing == "chunks" then
    request.chunks = {}
    for at = 1, #envelope.bytes, 777 do
      request.chunks[#request.chunks + 1] = envelope.bytes:sub(at, at + 776)
    end
  else
    request.body = envelope.bytes
  end
  return request
end

describe("the request files", function()
  after_each(Fleet.finish)

  it("are all there", function()
    assert.equal(25, #Envelope.names())
  end)

  it("are sent compactly, in their order, with their numbers", function()
    assert.equal('{"b":[1,2.50,-0e1,true],"a":"x \\" { , ]","c":{}}',
      Envelope.compact(' { "b" : [ 1 , 2.50,\n-0e1 , true ], "a":"x \\" { , ]" ,"c":{ } } '))
    local envelope = Envelope.read("s02-content-string")
    assert.equal(('{"model":"%s","messages":[{"role":'):format(envelope.body.model),
      envelope.bytes:match('^.-"role":'))
  end)

  for _, framing in ipairs({ "length", "chunks", "small reads" }) do
    it(("with %s: all on one connection"):format(framing), function()
      local fleet = start()
      local client = fleet:connect()
      for i, name in ipairs(Envelope.names()) do
        local envelope = Envelope.read(name)
        local must = envelope.expect.forward
        if must == "either" then must = assert(EITHER[name], name .. " has no rule") end
        local before = Replica.count_all(fleet.replicas)
        local text = http.text(request_of(envelope, framing))
        if framing == "small reads" then
          for at = 1, #text, 61 do
            client:send(text:sub(at, at + 60))
            loop.step(0)
          end
        else
          client:send(text)
        end
        client:expect()
        local answer = client:finish()
        if must == "reject" then
          check.api_error(answer, 400, "invalid_json")
          assert.equal(before, Replica.count_all(fleet.replicas))
        else
          assert.equal(200, answer.status, name)
          assert.equal(before + 1, Replica.count_all(fleet.replicas))
          local exchange = Replica.take_any(fleet.replicas)
          check.same_bytes(envelope.bytes, exchange.body, name)
          for header, value in pairs(envelope.headers) do
            assert.equal(value, exchange.request:header(header))
          end
        end
        assert.is_nil(client.connection.ended, name)
        assert.equal(1, fleet:admin("/admin/status").listeners[1].accepted, i)
      end
    end)
  end

  -- Blocks of the second that are believed to be held after the first; and all of its blocks.
  local function shared(first, second)
    local fleet = start()
    fleet:request(request_of(Envelope.read(first)))
    local answer = fleet:request(request_of(Envelope.read(second)))
    local row = fleet:row(2)
    assert.equal(row.match_blocks * BLOCK, tonumber(answer:header("x-kvroute-match")))
    return row.match_blocks, row.blocks, fleet:rows(2)
  end

  local relations = {
    same_prefix = function(match, blocks) assert.is_true(match > 0 and match == blocks) end,
    must_differ = function(match) assert.equal(0, match) end,
    no_shared_prefix = function(match) assert.equal(0, match) end,
    diverge_at_image = function(match, blocks) assert.is_true(match == 0 and blocks > 0) end,
    -- The two tools have the same first bytes, up to their names.
    must_not_match_beyond_common_start = function(match) assert.is_true(match * BLOCK < 48) end,
  }
  relations.same_prefix_preferred = relations.same_prefix

  for _, name in ipairs(Envelope.names()) do
    local pair = Envelope.read(name).expect.pair
    if pair then
      it(("%s after %s: %s"):format(name, pair.with, pair.relation), function()
        assert(relations[pair.relation], "unknown relation")(shared(pair.with, name))
      end)
    end
  end

  it("with a session: the header, or the cache key within its salt", function()
    local _, _, rows = shared("s23-cache-salt-1", "s24-cache-salt-2")
    assert.equal("prompt_cache_key", rows[1].session_source)
    assert.equal("prompt_cache_key", rows[2].session_source)
    assert.not_equal(rows[1].session, rows[2].session)
    _, _, rows = shared("s16-stream-n2-session", "s16-stream-n2-session")
    assert.equal("x-session-id", rows[1].session_source)
    assert.equal(2, rows[1].choices)
    assert.is_true(rows[1].stream)
  end)

  it("with two models: the last one counts, for the route and for the row", function()
    local envelope = Envelope.read("s18-duplicate-model-key")
    local names = {}
    for model in envelope.bytes:gmatch('"model"%s*:%s*"(.-)"') do names[#names + 1] = model end
    assert.equal(2, #names)
    local fleet = Fleet.start({ replicas = {
      { models = { names[1] }, script = Replica.answers() },
      { models = { names[2] }, script = Replica.answers() },
    } })
    assert.equal(200, fleet:request(request_of(envelope)).status)
    assert.equal(1, fleet.replicas[2]:count())
    assert.equal(names[2], fleet:row(1).model)
  end)

  it("with no prompt leave no belief, and an engine's 400 is the client's", function()
    local body = '{"error": {"message":"empty","code":"empty_array"} }'
    local fleet = start(Replica.answers({ status = 400, phrase = "Bad", body = body }))
    for i, name in ipairs({ "s13-empty-messages", "s14-null-user-zero-max" }) do
      local answer = fleet:request(request_of(Envelope.read(name)))
      assert.equal(400, answer.status)
      check.same_bytes(body, answer:body())
      local row = fleet:row(i)
      assert.equal("failed", row.outcome)
      assert.equal(0, row.blocks)
      assert.is_nil(row.moves)
      assert.equal(i, Replica.count_all(fleet.replicas))
    end
    assert.equal(0, fleet:admin("/admin/index").blocks)
    for _, each in ipairs(fleet.replicas) do
      assert.equal("up", fleet:replica_state(each.name).operational)
    end
  end)

  it("with a clock in front: the index stays bounded and the load is spread", function()
    local any = { script = Replica.answers(), settings = { any_model = true } }
    local fleet = Fleet.start({
      replicas = { any, any }, config = { index = { nodes = 1000 } },
    })
    local envelope = Envelope.read("s25-clock-in-system")
    local request = request_of(envelope)
    local client = fleet:connect()
    for i = 1, 100 do
      request.body = envelope.bytes:gsub("%d%d:%d%d", ("%02d:%02d"):format(i / 60, i % 60), 1)
      assert.equal(200, client:request(request).status)
    end
    local index = fleet:admin("/admin/index")
    assert.is_true(index.blocks <= 1000, index.blocks .. " blocks")
    for _, row in ipairs(fleet:rows(100)) do assert.equal("cold", row.reason) end
    assert.equal(50, fleet.replicas[1]:count())
    assert.equal(50, fleet.replicas[2]:count())
  end)

  it("with image bytes or token ids: estimated for what they are", function()
    local fleet = start()
    fleet:request(request_of(Envelope.read("s06-image-data-url-red")))
    fleet:request(request_of(Envelope.read("s10-prompt-token-ids")))
    fleet:request(request_of(Envelope.read("s11-prompt-token-batch")))
    local rows = fleet:rows(3)
    assert.is_true(rows[1].prompt_bytes < 60, "base64 is no text")
    assert.equal(70, rows[2].estimated_tokens)
    assert.equal(4, rows[3].choices)
    assert.equal(31 + 18, rows[3].estimated_tokens)
    assert.equal(cjson.null, rows[1].cached_tokens)
  end)
end)
