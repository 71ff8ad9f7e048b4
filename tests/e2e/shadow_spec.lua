-- Policies that only tell what they would have done, and explanations that send nothing.
local cjson = require("cjson")
local Command = require("e2e.support.command")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")
local Text = require("e2e.support.text")

local DONE, REFUSED, USAGE = Command.DONE, Command.REFUSED, Command.USAGE
local ctl, shows, has = Command.ctl, Command.shows, Command.has

-- The words of the first line that has this one.
local function line_with(text, word)
  for line in text:gmatch("[^\n]+") do
    local words, found = {}, false
    for each in line:gmatch("%S+") do
      words[#words + 1] = each
      found = found or each == word
    end
    if found then return words end
  end
end

-- What a report says of one shadow, counted again from rows.
local function count(rows, i)
  local counted = { evaluated = 0, agreed = 0, acting = {}, shadow = {} }
  for _, row in ipairs(rows) do
    local answer = row.shadow[i]
    counted.evaluated = counted.evaluated + 1
    counted.agreed = counted.agreed + (answer.replica == row.replica and 1 or 0)
    counted.acting[row.replica] = (counted.acting[row.replica] or 0) + 1
    counted.shadow[answer.replica] = (counted.shadow[answer.replica] or 0) + 1
  end
  return counted
end

local function assert_report(shadow, counted)
  assert.equal(counted.evaluated, shadow.evaluated)
  assert.equal(counted.agreed, shadow.agreed)
  assert.equal(counted.evaluated - counted.agreed, shadow.disagreed)
  for _, replica in ipairs(shadow.replicas) do
    assert.equal(counted.acting[replica.name] or 0, replica.acting)
    assert.equal(counted.shadow[replica.name] or 0, replica.shadow)
  end
end

-- A policy that does as it is told by the conversation's turn.
local by_turn = [[
  return { api = 1, name = "by_turn", pick = function(request)
    if request.turn == 12 then error("no idea") end
    if request.turn == 13 then
      local n = 0
      while n >= 0 do n = n + 1 end
    end
    return kvr.least(), "fine"
  end }
]]

local function chat_of_turn(fleet, turn)
  local messages = {}
  for i = 1, turn do
    messages[#messages + 1] = { role = "user", content = "question " .. i }
    if i < turn then messages[#messages + 1] = { role = "assistant", content = "answer" } end
  end
  return fleet:request({
    path = "/v1/chat/completions",
    body = { model = "test-model", messages = messages },
  })
end

describe("a shadow", function()
  after_each(Fleet.finish)

  it("tells in rows and in a report what it would have done, and does nothing", function()
    local fleet = Fleet.start({ replicas = 3, script = Replica.answers(), config = {
      policy = "round_robin",
      shadow = { "prefix_affinity", { policy = "round_robin" } },
    } })
    local client = fleet:connect()
    local texts = { Text.long(1500), "x" .. Text.long(1500) }
    for i = 1, 30 do client:request(Fleet.chat_request(texts[i % 2 + 1])) end
    local rows = fleet:rows(30)
    for i, row in ipairs(rows) do
      assert.equal("round_robin", row.policy.name)
      assert.is_nil(row.spill)
      assert.equal(rows[(i - 1) % 3 + 1].replica, row.replica) -- as if there were no shadow
      assert.equal(2, #row.shadow)
      assert.equal("prefix_affinity", row.shadow[1].name)
      assert.equal(16, #row.shadow[1].hash)
      assert.is_false(row.shadow[1].spilled)
      assert.equal(row.replica, row.shadow[2].replica)
      assert.equal(row.match_blocks, row.shadow[2].match_blocks)
      assert.is_true(row.shadow[1].match_blocks >= row.match_blocks)
    end
    assert.is_true(rows[6].shadow[1].match_blocks > 20)
    assert.equal("prefix", rows[6].shadow[1].reason)
    local report = fleet:admin("/admin/shadow")
    assert.equal("round_robin", report.acting.policy.name)
    assert.same({ "shadow_1", "shadow_2" }, { report.shadows[1].role, report.shadows[2].role })
    assert.equal("load_min", report.shadows[1].spill.name)
    assert_report(report.shadows[1], count(rows, 1))
    assert_report(report.shadows[2], count(rows, 2))
    assert.equal(30, report.shadows[2].agreed)
    assert.is_true(report.shadows[1].match_tokens > report.shadows[1].acting_match_tokens)
    assert.equal(report.shadows[1].acting_match_tokens, report.shadows[2].match_tokens)
    local page = fleet:metrics_page()
    has(page, 'kvroute_shadow_decisions_total{role="shadow_2",verdict="agreed"} 30\n')
    has(page, 'kvroute_script_calls_total{role="shadow_1"} 30\n')
    assert.equal(0, fleet:admin("/admin/status").decisions.spills)
  end)

  it("that fails, or never ends, costs no request and not the policy", function()
    local fleet = Fleet.start({
      replicas = 2,
      script = Replica.answers(),
      policies = { by_turn = by_turn },
      config = { policy = "round_robin", shadow = "by_turn" },
    })
    for i = 1, 12 do
      assert.equal(200, chat_of_turn(fleet, 12).status)
      local row = fleet:row(i)
      assert.same({ "by_turn", "failed" }, { row.shadow[1].name, row.shadow[1].verdict })
      assert.equal("round_robin", row.reason)
    end
    local shadow = fleet:admin("/admin/shadow").shadows[1]
    assert.same({ 0, 12, true }, { shadow.evaluated, shadow.failed, shadow.quarantined })
    has(shadow.error, "by_turn.lua:2: no idea")
    has(shows(fleet, "shadow"), "QUARANTINED")
    shows(fleet, "shadow", "off")
    shows(fleet, "shadow", "by_turn")
    assert.equal(200, chat_of_turn(fleet, 1).status)
    assert.equal(1, fleet:admin("/admin/shadow").shadows[1].agreed)

    assert.equal(200, chat_of_turn(fleet, 13).status)
    assert.equal("failed", fleet:row(14).shadow[1].verdict)
    assert.equal(200, chat_of_turn(fleet, 1).status)
    for _, script in ipairs(fleet:admin("/admin/scripts").scripts) do
      local is_shadow = script.role == "shadow_1"
      assert.equal(is_shadow, script.quarantined)
      assert.equal(is_shadow and 1 or 0, script.counters.runaways)
    end
    assert.equal(0, fleet:admin("/admin/status").decisions.fallbacks)
  end)

  it("is replaced when its file is saved, and counted anew", function()
    local text = [[return { api = 1, name = "mine",
      pick = function(request, view) return kvr.nth_available(0), "first" end }]]
    local fleet = Fleet.start({
      replicas = 2,
      script = Replica.answers(),
      policies = { mine = text },
      config = { policy = "round_robin", shadow = "mine" },
    })
    for _ = 1, 4 do fleet:chat("Hello") end
    local shadow = fleet:admin("/admin/shadow").shadows[1]
    assert.same({ 4, 2 }, { shadow.evaluated, shadow.agreed })
    Fleet.replace(fleet:policy_path("mine"), (text:gsub('"first"', '"saved"')))
    loop.wait(function()
      return fleet:admin("/admin/shadow").shadows[1].policy.generation == 2
    end, 3, "the saved text to be in force")
    for _ = 1, 3 do fleet:chat("Hello") end
    shadow = fleet:admin("/admin/shadow").shadows[1]
    assert.equal(3, shadow.evaluated)
    assert.equal(7, shadow.totals.evaluated)
    local told = fleet:row(7).shadow[1]
    assert.same({ "saved", 2 }, { told.reason, told.generation })
    -- What is refused leaves what was there.
    Fleet.replace(fleet:policy_path("mine"), "return {")
    loop.wait(function()
      return fleet:admin("/admin/shadow").shadows[1].error ~= cjson.null
    end, 3, "the bad text to be refused")
    fleet:chat("Hello")
    assert.equal("saved", fleet:row(8).shadow[1].reason)
  end)

  it("is set and shown by ctl", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers(), config = {
      policy = "round_robin",
    } })
    has(shows(fleet, "shadow"), "no shadow is on")
    fleet:chat("Hello")
    assert.is_nil(fleet:row(1).shadow)
    local out = shows(fleet, "shadow", "prefix_affinity", "spill=off", "by=load", "p2c")
    has(out, "shadow_1: prefix_affinity (generation 1)")
    has(out, "spill=off")
    has(out, "shadow_2: p2c (generation 1)")
    has(out, "no decision yet")
    local text = Text.long(700)
    for _ = 1, 8 do fleet:chat(text) end
    out = shows(fleet, "shadow")
    has(out, "8 decisions in")
    for _, replica in ipairs(fleet.replicas) do
      assert.equal("4", line_with(out, replica.name)[2])
    end
    local pair = line_with(out, "round_robin") and line_with(out, "prefix")
    assert.same({ "round_robin", "prefix" }, { pair[1], pair[2] })
    has(shows(fleet, "scripts"), "shadow_1_spill")
    has(shows(fleet, "status"), "shadow_2")
    shows(fleet, "set", "shadow_1", "by=in_flight")
    assert.equal(2, fleet:admin("/admin/shadow").shadows[1].policy.generation)

    local code, _, err = ctl(fleet, "shadow", "p2c", "nobody_wrote_it")
    assert.equal(REFUSED, code)
    has(err, "nobody_wrote_it")
    assert.equal(2, #fleet:admin("/admin/shadow").shadows)
    for _, arguments in ipairs({ { "spill=off", "p2c" }, { "off", "p2c" } }) do
      assert.equal(USAGE, (ctl(fleet, "shadow", unpack(arguments))))
    end
    assert.equal(REFUSED, (ctl(fleet, "shadow", "p2c", "p2c", "p2c", "p2c", "p2c")))
    has(shows(fleet, "shadow", "off"), "no shadow is on")
    fleet:chat("Hello")
    assert.is_nil(fleet:row(10).shadow)
  end)

  it("shows matches that nobody looked up as that, and who else acts", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers(), config = {
      policy = "round_robin", shadow = { "p2c" },
    } })
    local text = Text.long(700)
    for _ = 1, 8 do fleet:chat(text) end
    local out = shows(fleet, "shadow")
    has(out, "match: not looked up, no script in force needs it")
    local acting, shadow = out:match("\n  round_robin +p2c +%d+ +(%S+) +(%S+)\n")
    assert.is_true(acting == nil or acting == "-" and shadow == "-", out) -- nil: all agreed
    assert.is_nil(out:find("canary", 1, true))
    shows(fleet, "canary", "prefix_affinity", "0.25")
    out = shows(fleet, "shadow")
    has(out, "against round_robin (generation 1), and for 25 % the canary prefix_affinity")
    fleet:chat(text)
    assert.is_nil(shows(fleet, "shadow"):find("not looked up", 1, true))
  end)

  it("must exist at the start, as policies must", function()
    local fleet = Fleet.start()
    for _, case in ipairs({
      { '{ "nobody_wrote_it" }', "nobody_wrote_it" },
      { '{ { policy = "p2c", params = { nonsense = 1 } } }', "nonsense" },
      { '{ "p2c", "p2c", "p2c", "p2c", "p2c" }', "at most 4" },
    }) do
      local settings = Fleet.read(fleet.folder .. "/kvroute.lua")
      Fleet.write(fleet.folder .. "/other.lua", settings .. "shadow = " .. case[1] .. "\n")
      local other = process.start({ Fleet.binary, "serve", "-c", fleet.folder .. "/other.lua" },
        { out = fleet.folder .. "/other.out", err = fleet.folder .. "/other.err" })
      local how, code = other:wait(5)
      assert.equal("exited", how)
      assert.not_equal(0, code)
      has(other:stderr(), case[2])
    end
  end)
end)

describe("an explanation", function()
  after_each(Fleet.finish)

  local function explain(fleet, body, more)
    local asked = { body = body }
    for key, value in pairs(more or {}) do asked[key] = value end
    return fleet:admin("/admin/explain", asked)
  end

  it("says where a request would go, and sends nothing", function()
    local fleet = Fleet.start({ replicas = 3, script = Replica.answers() })
    local body = cjson.decode(Fleet.chat(Text.long(1500)))
    fleet:request({ path = "/v1/chat/completions", body = body })
    local home = fleet:row(1).replica
    for _ = 1, 3 do
      local told = explain(fleet, body)
      assert.equal("dispatch", told.outcome)
      assert.same({ home, "prefix" }, { told.replica, told.reason })
      assert.is_true(told.match_blocks > 20)
      assert.same({ "prefix_affinity", true }, { told.policy.name, told.policy.affine })
      assert.same({ "load_min", true, "stay" },
        { told.spill.name, told.spill.asked, told.spill.verdict })
      assert.equal(3, #told.candidates)
      assert.equal(2, told.request.serial)
      for _, row in ipairs(told.candidates) do
        assert.is_true(row.available)
        assert.equal(row.replica == home and told.match_blocks or 0, row.match_blocks)
      end
    end
    fleet:request({ path = "/v1/chat/completions", body = body })
    assert.equal(home, fleet:row(2).replica)
    assert.equal(2, fleet:admin("/admin/status").requests.received)
    local sent = 0
    for _, replica in ipairs(fleet.replicas) do sent = sent + replica:count() end
    assert.equal(2, sent)
    has(fleet:metrics_page(), "kvroute_requests_received_total 2\n")
  end)

  it("knows spills, sessions, refusals and other paths", function()
    local fleet = Fleet.start({ replicas = 2 })
    local text = Text.long(1500)
    local streams = {}
    local function begin()
      local client = fleet:connect()
      client:begin(Fleet.chat_request(text, { stream = true }))
      local replica
      loop.wait(function()
        for _, each in ipairs(fleet.replicas) do
          if each:count() > (each.taken or 0) then replica = each end
        end
        return replica
      end, 3, "the request to arrive")
      local exchange = replica:take()
      exchange:stream()
      exchange:event("one")
      client:wait_body(1)
      streams[#streams + 1] = { client, exchange }
    end
    for _ = 1, 3 do begin() end
    local told = explain(fleet, cjson.decode(Fleet.chat(text)))
    assert.same({ "prefix", "move" }, { told.policy.reason, told.spill.verdict })
    assert.not_equal(told.policy.replica, told.replica)
    assert.same({ told.spill.replica, "spill_load" }, { told.replica, told.reason })
    for _, pair in ipairs(streams) do
      pair[2]:finish()
      pair[1]:finish()
    end
    local body = { prompt = "Hello", model = "test-model" }
    told = explain(fleet, body, { path = "/v1/completions", headers = { ["X-Session-Id"] = "a" } })
    assert.same({ "completions", "x-session-id" }, { told.endpoint, told.session_source })
    assert.equal(told.session, explain(fleet, body, {
      path = "/v1/completions", headers = { ["x-session-ID"] = "a" },
    }).session)
    told = explain(fleet, cjson.decode(Fleet.chat("Hello", { model = "nobody" })))
    assert.same({ "reject", "model_not_found" }, { told.outcome, told.rejection })
    assert.same({ cjson.null, cjson.null }, { told.replica, told.policy })
    told = explain(fleet, "whatever", { path = "/tokenize" })
    assert.same({ "other", "dispatch", "opaque" }, { told.endpoint, told.outcome, told.reason })
  end)

  it("is a table for people, of a file, of stdin, of any length", function()
    local fleet = Fleet.start({ replicas = 2, script = Replica.answers(), config = {
      shadow = "round_robin",
    } })
    local file = fleet.folder .. "/body.json"
    Fleet.write(file, " " .. Fleet.chat(Text.long(1500)) .. "\n")
    fleet:chat(Text.long(1500))
    local home = fleet:row(1).replica
    local out = shows(fleet, "explain", file, "-H", "X-Session-Id: a")
    has(out, "session by x-session-id")
    has(out, "prefix_affinity, gen 1: " .. home .. " by prefix")
    has(out, "load_min, gen 1: stays")
    has(out, "shadow_1  round_robin")
    assert.same({ ">", home, "up" }, { unpack(line_with(out, ">"), 1, 3) })
    local code, json = ctl(fleet, "explain", "--json", file)
    assert.equal(DONE, code)
    assert.equal(home, cjson.decode(json).replica)

    Fleet.write(file, cjson.encode({ prompt = Text.long(3000000), model = "test-model" }))
    out = shows(fleet, "explain", file, "--path", "/v1/completions")
    has(out, "3000000 bytes")
    Fleet.write(file, "{ nothing")
    local err
    code, out, err = ctl(fleet, "explain", file)
    assert.same({ USAGE, "" }, { code, out })
    has(err, "body.json is no JSON")
    for _, arguments in ipairs({
      { "explain" }, { "explain", "/nowhere/at/all" }, { "explain", file, "-H", "nonsense" },
      { "status", "--path", "/x" }, { "shadow", "-H", "a: b" },
    }) do
      assert.equal(USAGE, (ctl(fleet, unpack(arguments))))
    end
    Fleet.write(file, "[]")
    code, out, err = ctl(fleet, "explain", file)
    assert.same({ REFUSED, "" }, { code, out })
    has(err, "body: ")
  end)
end)
