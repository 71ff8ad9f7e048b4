-- A numbered case, after public reports on other proxies with scripts inside: a script that does
-- not end, fails, eats memory or answers nonsense costs no request.
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

-- A policy that is well until a request asks for 77 tokens.
local function policy(evil, before)
  return ([[
%s
local P = { api = 1, name = "mine" }
function P.pick(request, view)
  if request.max_tokens == 77 then
    %s
  end
  return kvr.least(), "well"
end
return P
]]):format(before or "", evil)
end

-- What goes wrong; which counter tells; whether one is one too many.
local evils = {
  ["loops for ever"] = { "while true do end", kind = "runaways", once = true },
  ["loops for ever in compiled code"] = {
    "local n = 0 for i = 1, 1e15 do n = n + i % 3 end return n, 'x'", kind = "runaways",
    once = true,
  },
  ["loops for ever in C"] = {
    "while true do local s = tostring(math.random()) .. tostring(view) end", kind = "runaways",
    once = true,
  },
  ["raises a table"] = { "error({})", kind = "errors" },
  ["raises nothing"] = { "error()", kind = "errors" },
  ["recurses without end"] = { "local function f() return 1 + f() end f()", kind = "errors" },
  ["calls what is not there"] = { "return nothing()", kind = "errors" },
  ["reads past the view"] = { "return view[view.count].id", kind = "errors" },
  ["calls a method of strings"] = { "return ('x'):rep(1e9)", kind = "errors" },
  ["writes to the view"] = { "view[0].in_flight = 0", kind = "errors" },
  ["eats a megabyte a pick"] = {
    "for i = 1, 40000 do hoard[#hoard + 1] = { i } end", "local hoard = {}", kind = "memory",
    fine_at_first = true,
  },
  ["picks a replica beyond the last"] = { "return view.count, 'x'", kind = "bad_results" },
  ["picks a replica before the first"] = { "return -1, 'x'", kind = "bad_results" },
  ["picks not a number"] = { "return 0 / 0, 'x'", kind = "bad_results" },
  ["picks half a replica"] = { "return 0.5, 'x'", kind = "bad_results" },
  ["picks a text"] = { "return '0', 'x'", kind = "bad_results" },
  ["picks the one that was taken out"] = {
    "for i = 0, view.count - 1 do if not view[i].available then return i, 'x' end end",
    kind = "bad_results",
  },
  ["picks nothing"] = { "return nil", kind = nil },
}

describe("a script", function()
  after_each(Peers.finish)

  it("B55 that goes wrong, in whatever way, is a fallback and a counter", function()
    local policies = {}
    local names = {}
    for what, evil in pairs(evils) do
      names[what] = "evil_" .. what:lower():gsub("%W", "_")
      policies[names[what]] = policy(evil[1], evil[2]):gsub('"mine"', ("%q"):format(names[what]))
    end
    local fleet = Fleet.start({
      replicas = 3, script = Replica.answers(), policies = policies,
      config = { scripts = { memory_mb = 4 } },
    })
    local out = fleet.replicas[3]
    Peers.command(fleet, "replicas/drain", { replica = out.name })
    local client, asked, fell_back = fleet:connect(), 0, 0
    local function ask(max_tokens)
      local began = loop.now()
      local answer = client:request(chat_request("Hello", { max_tokens = max_tokens }))
      assert.equal(200, answer.status)
      asked = asked + 1
      local reason = answer:header("x-kvroute-reason")
      fell_back = fell_back + (reason == "fallback" and 1 or 0)
      return reason, loop.now() - began
    end
    local function state() return fleet:admin("/admin/scripts").scripts[1] end
    local before, abandoned = fleet.router:rss(), 0
    local ordered = {}
    for what in pairs(evils) do ordered[#ordered + 1] = what end
    table.sort(ordered)
    for _, what in ipairs(ordered) do
      local evil = evils[what]
      Peers.command(fleet, "policy", { name = names[what] })
      local counted = state().counters[evil.kind]
      assert.equal("well", ask())
      local reason, took = ask(77)
      assert.equal(evil.fine_at_first and "well" or "fallback", reason, what)
      -- 50 ms of the loop's own CPU time, and what else runs here.
      assert.is_true(took < 0.5, ("%s takes %.3f s"):format(what, took))
      if evil.once then
        abandoned = abandoned + 1
        assert.is_true(state().quarantined, what)
        assert.equal("fallback", ask())
      else
        assert.equal("well", ask())
        for _ = 1, 15 do ask(77) end
        if evil.kind ~= "memory" then assert.equal(evil.kind ~= nil, state().quarantined, what) end
      end
      if evil.kind then
        assert.is_true(state().counters[evil.kind] > counted, what)
        assert.is_truthy(state().error ~= nil, what)
      end
    end
    assert.equal(0, out:count())
    assert.equal(abandoned, fleet:admin("/admin/scripts").abandoned_vms)
    assert.equal(fell_back, Peers.metric(fleet, "kvroute_fallbacks_total"))
    assert.is_true(Peers.grown(fleet, before) < 64e6)
    for _, row in ipairs(fleet:rows(asked)) do assert.equal("success", row.outcome) end
    -- The next good one is asked again.
    Peers.command(fleet, "policy", { name = "least_outstanding" })
    assert.equal("least_outstanding", (ask()))
  end)

  it("B55 cannot reach what would keep it alive, or hide its failures", function()
    local fleet = Fleet.start({ replicas = 1, script = Replica.answers() })
    for what, text in pairs({
      pcall = "pcall(error)", coroutine = "coroutine.create(print)", setmetatable =
        "setmetatable({}, { __gc = print })", loadstring = "loadstring('x')", debug =
        "debug.sethook()", newproxy = "newproxy(true)", ffi = "require('ffi')", rep =
        "string.rep('x', 1e9)",
    }) do
      local path = fleet.folder .. "/bad.lua"
      Fleet.write(path, policy("return kvr.least()", text))
      local answer = fleet:admin_answer("/admin/policy", { name = path })
      assert.equal(422, answer.status, what)
      assert.is_truthy(answer:json().error.message:find("bad.lua:1:", 1, true), what)
      assert.equal("cold", fleet:chat(what):header("x-kvroute-reason"))
    end
  end)
end)
