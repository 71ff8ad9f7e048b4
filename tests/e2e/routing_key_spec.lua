-- What requests are counted and planned by: a setting, seen in rows.
local Fleet = require("e2e.support.fleet")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")

-- The routing keys in the rows of requests with these texts, fields and headers, one after another.
local function keys_of(config, requests)
  local fleet = Fleet.start({ script = Replica.answers(), config = config })
  local keys = {}
  for i, each in ipairs(requests) do
    local answer = fleet:chat(each.text or "Hello", each.fields, each.headers)
    assert.equal(200, answer.status)
    local row = fleet:row(i)
    assert.equal(16, #row.routing_key)
    keys[i] = row.routing_key
    if each.own then assert.equal(row.session, row.routing_key) end
  end
  return keys
end

describe("the routing key", function()
  after_each(Fleet.finish)

  it("is the session's unless configured", function()
    local keys = keys_of(nil, {
      { headers = { "X-Session-Id: a" }, own = true },
      { headers = { "X-Session-Id: a" }, text = "Something else", own = true },
      { headers = { "X-Session-Id: b" }, own = true },
    })
    assert.equal(keys[1], keys[2])
    assert.not_equal(keys[1], keys[3])
  end)

  it("is a header, else a field of the body", function()
    local keys = keys_of({ routing = { by = "key", key = "shard" } }, {
      { headers = { "Shard: blue", "X-Session-Id: a" } },
      { headers = { "X-Session-Id: b" }, fields = { shard = "blue" } },
      { headers = { "shard: red" }, fields = { shard = "blue" } },
      { headers = { "X-Session-Id: c" }, own = true },
    })
    assert.equal(keys[1], keys[2])
    assert.not_equal(keys[1], keys[3])
    assert.not_equal(keys[1], keys[4])
  end)

  it("is a field in the metadata", function()
    local keys = keys_of({ routing = { by = "key", key = "metadata.team" } }, {
      { fields = { metadata = { team = "blue" } }, text = "one" },
      { fields = { metadata = { team = "blue" } }, text = "two" },
      { fields = { metadata = { team = "red" } }, text = "two" },
    })
    assert.equal(keys[1], keys[2])
    assert.not_equal(keys[1], keys[3])
  end)

  it("is the tenant", function()
    local config = { tenant = { key = "x-tenant" }, routing = { by = "tenant" } }
    local keys = keys_of(config, {
      { headers = { "X-Tenant: acme", "X-Session-Id: a" } },
      { headers = { "X-Tenant: acme", "X-Session-Id: b" } },
      { headers = { "X-Tenant: other", "X-Session-Id: b" } },
      { headers = { "X-Session-Id: b" }, own = true },
    })
    assert.equal(keys[1], keys[2])
    assert.not_equal(keys[1], keys[3])
  end)

  it("is the prompt's first blocks", function()
    local shared = Text.long(600)
    local keys = keys_of({ routing = { by = "blocks", blocks = 8 } }, {
      { text = shared .. " and the end of it", headers = { "X-Session-Id: a" } },
      { text = shared .. " or another", headers = { "X-Session-Id: b" } },
      { text = "x" .. shared, headers = { "X-Session-Id: b" } },
      { text = "short", headers = { "X-Session-Id: c" }, own = true }, -- not one whole block
    })
    assert.equal(keys[1], keys[2])
    assert.not_equal(keys[1], keys[3])
  end)
end)
