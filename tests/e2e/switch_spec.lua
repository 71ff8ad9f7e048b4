-- Another policy, another spill rule, other params: switched while traffic flows.
local cjson = require("cjson")
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Mine = require("e2e.support.mine")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

describe("switches at run time", function()
  after_each(Fleet.finish)

  local function last_row(fleet, client, count)
    client:request(chat_request("Hello", nil, { "x-session-id: s" }))
    return fleet:row(count)
  end

  it("change the policy, the spill rule and params, each on its own", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers() })
    local client = fleet:connect()
    local row = last_row(fleet, client, 1)
    assert.equal("prefix_affinity", row.policy.name)

    fleet:admin("/admin/policy", { name = "session_affinity", params = { mode = "hrw" } })
    row = last_row(fleet, client, 2)
    assert.equal("session_affinity", row.policy.name)
    assert.equal("session_affinity", row.reason)
    assert.equal("mode=hrw", fleet:script().params)
    local hrw = row.policy.params

    fleet:admin("/admin/params", { role = "policy", params = { mode = "ring" } })
    row = last_row(fleet, client, 3)
    assert.equal("session_affinity", row.policy.name)
    assert.not_equal(hrw, row.policy.params)
    assert.equal("mode=ring", fleet:script().params)

    fleet:admin("/admin/spill", { name = "tokens", params = { seconds = 3 } })
    assert.equal("tokens", fleet:script("spill").name)
    assert.equal("session_affinity", fleet:script().name)
    fleet:admin("/admin/policy", { name = "prefix_affinity" })
    -- The operator's choice of a spill rule stands; an empty name goes back to the policy's.
    assert.equal("tokens", fleet:script("spill").name)
    fleet:admin("/admin/spill", { name = "" })
    assert.equal("load_min", fleet:script("spill").name)

    fleet:admin("/admin/canary", { name = "round_robin", share = 1 })
    row = last_row(fleet, client, 4)
    assert.is_true(row.canary)
    assert.equal("round_robin", row.policy.name)
    fleet:admin("/admin/canary", { name = "" })
    row = last_row(fleet, client, 5)
    assert.is_nil(row.canary)
    assert.equal("prefix_affinity", row.policy.name)
  end)

  it("keep params over a reload of the file", function()
    local text = [[
local P = { api = 1, name = "mine", params = { word = "plain", size = 1 } }
local word
function P.init(params) word = params.word end
function P.pick() return kvr.least(), word end
return P
]]
    local fleet = Mine.start(text)
    local client = fleet:connect()
    assert.equal("plain", Mine.reason_now(client))
    fleet:admin("/admin/params", { role = "policy", params = { word = "set" } })
    assert.equal("set", Mine.reason_now(client))
    Fleet.replace(fleet:policy_path("mine"), text .. "-- edited\n")
    loop.wait(function() return fleet:script().generation == 3 end, 1, "the edited text")
    assert.equal("set", Mine.reason_now(client))
    assert.equal("size=1 word=set", fleet:script().params)
  end)

  it("name a policy and its spill rule: both come in force, or neither", function()
    local text = 'local n = 0\nreturn { api = 1, name = "mine", params = { spill = "" },\n'
      .. "pick = function() n = n + 1 return kvr.least(), n < 2 and 'begins' or 'goes_on' end }"
    local fleet = Mine.start(text)
    local client = fleet:connect()
    for _ = 1, 5 do client:request(chat_request("Hello")) end
    assert.equal("goes_on", Mine.reason_now(client))
    local function refused(path, body)
      local answer = fleet:admin_answer(path, body)
      local message = check.api_error(answer, 404, "not_found").message
      assert.is_truthy(message:find("params.spill: there is no spill rule nope", 1, true), message)
      assert.equal(1, fleet:script().generation)
      assert.equal("mine", fleet:script().name)
      assert.equal('spill=""', fleet:script().params)
      assert.equal("goes_on", Mine.reason_now(client)) -- the very same VM
    end
    refused("/admin/params", { role = "policy", params = { spill = "nope" } })
    refused("/admin/policy", { name = "prefix_affinity", params = { spill = "nope" } })
    -- Not even its file is needed.
    assert(os.remove(fleet:policy_path("mine")))
    refused("/admin/policy", { name = "prefix_affinity", params = { spill = "nope" } })
    -- A saved text that names none is refused as a whole, and the slot says so.
    Fleet.replace(fleet:policy_path("mine"), (text:gsub('spill = ""', 'spill = "nope"')))
    loop.wait(function()
      return fleet:script().error ~= cjson.null
        and fleet:script().error:find("params.spill: there is no spill rule nope", 1, true)
    end, 2, "the refusal")
    assert.equal("goes_on", Mine.reason_now(client))
    fleet:admin("/admin/policy", { name = "mine", params = { spill = "tokens" } })
    assert.equal("tokens", fleet:script("spill").name)
    assert.equal(2, fleet:script().generation)
  end)

  it("that are wrong change nothing", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers() })
    local before = fleet:script()
    for path, body in pairs({
      ["/admin/policy"] = { name = "no_such_policy" },
      ["/admin/spill"] = { name = "../../etc/passwd" },
      ["/admin/params"] = { role = "policy", params = { no_such = 1 } },
      ["/admin/canary"] = { name = "p2c", share = 2 },
    }) do
      local answer = fleet:admin_answer(path, body)
      assert.is_true(answer.status >= 400 and answer.status < 500, path)
      check.api_error(answer, answer.status, answer:json().error.code)
    end
    local after = fleet:script()
    assert.equal(before.generation, after.generation)
    assert.equal(before.params, after.params)
    assert.equal("load_min", fleet:script("spill").name)
    assert.is_false(fleet:script("canary").in_force)
    assert.equal(200, fleet:chat("Hello").status)
  end)
end)
