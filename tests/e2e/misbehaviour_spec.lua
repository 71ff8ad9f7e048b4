-- Policies and spill rules that go wrong at run time: no request is lost by it.
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local Mine = require("e2e.support.mine")
local Replica = require("e2e.support.replica")

local chat_request = Fleet.chat_request

describe("a policy that goes wrong at run time", function()
  after_each(Fleet.finish)

  local counter = "local n = 0"
  local loops = {
    ["loops from its 1,000th decision on"] = "n = n + 1 while n >= 1000 do end",
    ["loops in a helper from its 1,000th decision on"] =
      "n = n + 1 kvr.least_by(function(row) while n >= 1000 do end return row.load end)",
    ["loops in compiled arithmetic"] =
      "n = n + 1 if n >= 1000 then local x = 1 repeat x = math.sqrt(x) until x > 1 end",
  }
  for what, body in pairs(loops) do
    it(what .. ": it is left behind, every request is answered", function()
      -- The script gets 50 ms of CPU, and a full machine may take long to give them: so up to
      -- three tries, and no word on latency where the client itself was late to send.
      local fleet, result
      for _ = 1, 3 do
        Fleet.finish()
        fleet = Mine.start_for_load(Mine.text("counts", body, counter))
        result = Load.start(fleet, { rate = 1000, seconds = 2 }):finish()
        Load.assert_all_answered(result)
        assert.equal(2000, result.sent)
        if result.latency_p99_us < 200000 then break end
      end
      assert.is_true(result.latency_p99_us < 200000 or result.late_p99_us > 4000,
        ("p99 %d us, late %d us"):format(result.latency_p99_us, result.late_p99_us))
      local script = fleet:script()
      assert.is_true(script.quarantined)
      assert.equal(1, script.counters.runaways)
      assert.is_truthy(script.error:find("mine%.lua"), script.error)
      assert.equal(1, fleet:admin("/admin/scripts").abandoned_vms)
      local decided, fell_back = 0, 0
      for _, row in ipairs(fleet:rows(2000)) do
        assert.equal("success", row.outcome)
        if row.fallback then
          fell_back = fell_back + 1
          assert.equal("fallback", row.reason)
        else
          decided = decided + 1
          assert.equal("counts", row.reason)
        end
      end
      assert.equal(999, decided)
      assert.equal(1001, fell_back)
      -- The next good text lifts the quarantine.
      local client = fleet:connect()
      Fleet.replace(fleet:policy_path("mine"), Mine.text("well"))
      Mine.wait_reason(client, "well", loop.now(), "bench")
      assert.is_false(fleet:script().quarantined)
    end)
  end

  it("in a spill rule: the preferred replica keeps the request", function()
    local fleet = Fleet.start({
      replicas = 2, script = Replica.answers(),
      policies = {
        mine = 'return { api = 1, name = "mine", params = { spill = "bad" }, pick = function()\n'
          .. '  return kvr.least(), "affine", true\nend }\n',
        ["spill/bad"] = 'local n = 0\nreturn { api = 1, name = "bad", spill = function(_, _, p)\n'
          .. "  n = n + 1\n  while n >= 20 do end\n  return p\nend }\n",
      },
      config = { policy = "mine" },
    })
    local client = fleet:connect()
    for _ = 1, 30 do assert.equal("affine", Mine.reason_now(client)) end
    local spill = fleet:script("spill")
    assert.is_true(spill.quarantined)
    assert.equal(1, spill.counters.runaways)
    assert.is_false(fleet:script().quarantined)
    for _, row in ipairs(fleet:rows(30)) do assert.is_nil(row.fallback) end
  end)

  it("raises now and then: those requests go by the fallback", function()
    local fleet = Mine.start(Mine.text("fine",
      "n = n + 1\n  if n % 200 == 0 then error('not today') end", counter))
    local client = fleet:connect()
    for i = 1, 400 do
      local reason = Mine.reason_now(client)
      assert.equal(i % 200 == 0 and "fallback" or "fine", reason)
    end
    assert.equal(2, Mine.counters(fleet).errors)
    assert.is_false(fleet:script().quarantined)
    assert.is_truthy(fleet:script().error:find("mine%.lua:5: not today"))
  end)

  it("raises too often: it is asked no more", function()
    local fleet = Mine.start(Mine.text("fine", "n = n + 1\n  if n > 50 then error(n) end", counter))
    local client = fleet:connect()
    for _ = 1, 100 do assert.equal(200, client:request(chat_request("Hello")).status) end
    local script = fleet:script()
    assert.is_true(script.quarantined)
    assert.equal(10, script.counters.errors)
    assert.equal(60, script.counters.calls)
  end)

  it("returns what it may not: the fallback decides, and C has checked", function()
    local fleet = Mine.start(Mine.text("fine", [[
n = n + 1
  if n == 30 then return 99, "x" end
  if n == 31 then return -1, "x" end
  if n == 32 then return 0.5, "x" end
  if n == 33 then return "0", "x" end
  if n == 34 then return 0 / 0, "x" end
  if n == 35 then return nil end]], counter))
    local client = fleet:connect()
    for i = 1, 40 do
      assert.equal((i >= 30 and i <= 35) and "fallback" or "fine", Mine.reason_now(client))
    end
    assert.equal(5, Mine.counters(fleet).bad_results) -- nil is no opinion
    assert.is_false(fleet:script().quarantined)
  end)

  it("picks a replica that is not there to pick: it does not go there", function()
    local body = "n = n + 1 if n > 30 then return 0, 'blind' end"
    local fleet = Mine.start(Mine.text("sees", body, counter))
    local client = fleet:connect()
    for _ = 1, 30 do assert.equal("sees", Mine.reason_now(client)) end
    local gone = fleet.replicas[1]
    fleet:admin("/admin/replicas/drain", { replica = gone.name })
    local before = gone:count()
    for _ = 1, 8 do assert.equal("fallback", Mine.reason_now(client)) end
    assert.equal(before, gone:count())
    assert.equal(8, Mine.counters(fleet).bad_results)
  end)

  it("hoards memory: it starts afresh, and the router does not grow", function()
    local fleet = Mine.start(Mine.text("hoards", [[
n = n + 1
  if n > 20 then
    local t = {}
    for i = 1, 400000 do t[i] = i end
    hoard[n] = t
  end]], "local n, hoard = 0, {}"))
    local client = fleet:connect()
    local before = fleet.router:rss()
    for _ = 1, 100 do assert.equal(200, client:request(chat_request("Hello")).status) end
    assert.is_true(Mine.counters(fleet).memory >= 1)
    assert.is_true(fleet.router:rss() - before < 100000000)
    for _, row in ipairs(fleet:rows(100)) do assert.equal("success", row.outcome) end
  end)
end)
