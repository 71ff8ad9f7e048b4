-- What a gate vouches for, in a running router: its envelope, the guard that keeps to it, and a
-- canary of routing keys, before emulated engines.
local posix_stat = require("posix.sys.stat")
local json = require("kvroute.json")
local Command = require("e2e.support.command")
local Emulator = require("e2e.support.emulator")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local loop = require("e2e.support.loop")

local WINDOW_MS = 1000

local ctl, shows, has = Command.ctl, Command.shows, Command.has

local function finish()
  local ok, why = pcall(Emulator.finish)
  Fleet.finish()
  if not ok then error(why, 0) end
end

local function write(path, text)
  Fleet.write(path, text)
  return path
end

local function start(config)
  local emulator = Emulator.start({ replicas = 2, args = { "--profile", "simple",
    "--time-scale", "50", "--served-model-name", "emulated" } })
  config.gate = config.gate or {}
  config.gate.window_ms, config.gate.requests_min = WINDOW_MS, 5
  return Fleet.start({ replicas = emulator.urls, config = config })
end

-- Streams of these sessions, one after another; or answers that come whole.
local function ask(client, session, whole)
  local answer = client:request(Fleet.chat_request("Which dock is open?",
    { model = "emulated", stream = not whole, max_tokens = 2 }, { "x-session-id: " .. session }))
  assert.equal(200, answer.status)
end

-- A script in force, as a gate names what it judged; null: there is none.
local function in_force(fleet, role)
  for _, each in ipairs(fleet:admin("/admin/scripts").scripts) do
    if each.role == role and each.in_force then
      return { name = each.name, hash = each.hash, params_hash = each.params_hash }
    end
  end
  return json.null
end

local function judged(fleet)
  local candidate = in_force(fleet, "policy")
  candidate.spill = in_force(fleet, "spill")
  return candidate
end

-- A file of a gate whose envelope is around these keys.
local function envelope(keys, changes)
  local list, seen = json.list({}), {}
  for _, key in ipairs(keys) do
    if not seen[key] then list[#list + 1] = json.list({ key, 1 }) end
    seen[key] = true
  end
  local gate = { format = "kvroute-gate-2", verdict = "enable", against = { name = "p2c" },
    candidate = { name = "session_affinity", hash = ("0"):rep(16), params_hash = ("1"):rep(16),
      spill = json.null },
    bounds = { active_share = 0.8, ttft_p99_ms = 60000, token_ms = 1000 }, keys = list }
  for name, value in pairs(changes or {}) do gate[name] = value end
  return json.encode(gate)
end

local function keys_of(rows)
  local keys = {}
  for i, row in ipairs(rows) do keys[i] = row.routing_key end
  return keys
end

local function gate_of(fleet) return fleet:admin("/admin/gate").gate end

-- Asks until the guard has acted. How often.
local function ask_until_left(fleet, client, name, whole)
  local n = 0
  loop.wait(function()
    n = n + 1
    ask(client, name .. n % 4, whole)
    return gate_of(fleet).left ~= json.null
  end, 20, "the guard to act")
  return n
end

local function metric(fleet, line)
  has(fleet:metrics_page(), "\n" .. line .. "\n")
end

describe("the guard of a gate", function()
  after_each(finish)

  it("has the baseline decide when other keys come, until a new gate", function()
    local fleet = start({ policy = "session_affinity" })
    local client = fleet:connect()
    for i = 1, 12 do ask(client, "known" .. i % 4) end
    local known = fleet:rows(12)
    local candidate = judged(fleet)
    assert.same({ known[1].policy.hash, known[1].policy.params },
      { candidate.hash, candidate.params_hash })
    local file = write(fleet.folder .. "/gate.json", envelope(keys_of(known),
      { candidate = candidate }))
    has(shows(fleet, "gate"), "no gate is in force")
    has(shows(fleet, "gate", file), "what was judged is in force as policy")
    for i = 1, 12 do ask(client, "known" .. i % 4) end
    assert.equal(json.null, gate_of(fleet).left)
    metric(fleet, 'kvroute_gate_left{reason="active_set"} 0')

    local asked = 24 + ask_until_left(fleet, client, "other")
    ask(client, "known1")
    has(shows(fleet, "gate"), "ago by active_set: p2c decides until a new gate")
    has(shows(fleet, "status"), "LEFT")
    metric(fleet, 'kvroute_gate_left{reason="active_set"} 1')
    metric(fleet, "kvroute_gate_left_total 1")
    has(Fleet.read(fleet.folder .. "/err"), "the envelope of the gate of session_affinity is left")

    -- No request failed, and the guard acted within a window of the first other key.
    local rows = fleet:rows(asked + 1)
    table.sort(rows, function(a, b) return a.sequence < b.sequence end)
    local flipped, left, gap = rows[25].started_ms, nil, 0
    for i, row in ipairs(rows) do
      assert.equal("success", row.outcome)
      left = left or row.baseline and row.started_ms
      if i > 1 then gap = math.max(gap, row.started_ms - rows[i - 1].started_ms) end
      assert.equal(row.baseline and "p2c" or "session_affinity", row.policy.name)
    end
    assert.equal("active_set", rows[#rows].baseline)
    assert.is_true(left - flipped <= WINDOW_MS + gap, ("%g ms"):format(left - flipped))

    write(file, envelope(keys_of(rows)))
    local out = shows(fleet, "gate", file)
    has(out, "8 keys")
    has(out, "what acts is NOT what was judged:\n"
      .. "  policy session_affinity: its text and params differ\n")
    ask(client, "other1")
    local last = fleet:row(#rows + 1)
    assert.same({ "session_affinity" }, { last.policy.name, last.baseline })
    has(shows(fleet, "gate", "off"), "no gate is in force")
    assert.is_nil(shows(fleet, "scripts"):find("baseline", 1, true))
  end)

  it("has the baseline decide when first tokens are late", function()
    local fleet = start({ policy = "session_affinity", gate = { baseline = "round_robin" } })
    local client = fleet:connect()
    ask(client, "late1")
    local file = write(fleet.folder .. "/gate.json", envelope(keys_of(fleet:rows(1)), {
      bounds = { active_share = 0, ttft_p99_ms = 0.001, token_ms = 60000 } }))
    shows(fleet, "gate", file)
    for _ = 1, 8 do ask(client, "late1", true) end -- which has a second token, and so a minute
    local asked = 9 + ask_until_left(fleet, client, "late")
    ask(client, "late1")
    local gate = gate_of(fleet)
    assert.equal("ttft_p99", gate.left.reason)
    assert.equal(gate.left.window.streams.count, gate.left.window.streams.late)
    assert.equal(0, gate.left.window.wholes.late)
    assert.equal("round_robin", gate.baseline)
    local rows = fleet:rows(asked + 1)
    local last = rows[#rows]
    assert.same({ "round_robin", "ttft_p99" }, { last.policy.name, last.baseline })
    for _, row in ipairs(rows) do assert.equal("success", row.outcome) end
  end)

  it("has the baseline decide when answers without streaming are late", function()
    local fleet = start({ policy = "session_affinity" })
    local client = fleet:connect()
    ask(client, "late1", true)
    local file = write(fleet.folder .. "/gate.json", envelope(keys_of(fleet:rows(1)), {
      bounds = { active_share = 0, ttft_p99_ms = 0.001, token_ms = 0.001 } }))
    shows(fleet, "gate", file)
    local asked = 1 + ask_until_left(fleet, client, "late", true)
    ask(client, "late1", true)
    local gate, out = gate_of(fleet), shows(fleet, "gate")
    assert.equal("total_p99", gate.left.reason)
    assert.equal(0, gate.left.window.streams.count)
    assert.is_true(gate.left.window.wholes.count >= 5)
    has(out, "ago by total_p99: p2c decides until a new gate")
    has(out, "  0 guarded streams, - of them with a first token after 0 ms (at most 1 %);\n")
    has(out, " guarded whole answers, 100.00 % of them later than that and 0.0 ms a token more")
    metric(fleet, 'kvroute_gate_left{reason="total_p99"} 1')
    local rows = fleet:rows(asked + 1)
    assert.equal("total_p99", rows[#rows].baseline)
  end)

  it("tells what acts from what was judged by params and spill rule, too", function()
    local fleet = start({ policy = "prefix_affinity" })
    local candidate = judged(fleet)
    assert.equal("load_min", candidate.spill.name)
    local file = write(fleet.folder .. "/gate.json",
      envelope({ ("a"):rep(16) }, { candidate = candidate, against = in_force(fleet, "policy") }))
    has(shows(fleet, "gate", file), "what was judged is in force as policy")
    has(shows(fleet, "status"), "kept; what was judged is in force")
    metric(fleet, "kvroute_gate_covers 1")
    shows(fleet, "set", "policy", "by=load")
    has(shows(fleet, "gate"), "NOT what was judged:\n  policy prefix_affinity: its params differ\n")
    has(shows(fleet, "status"), "what acts is NOT what was judged, see ctl gate")
    has(Fleet.read(fleet.folder .. "/err"), "what acts is no longer what the gate of "
      .. "prefix_affinity judged: policy prefix_affinity: its params differ")
    metric(fleet, "kvroute_gate_covers 0")
    shows(fleet, "spill", "off")
    has(shows(fleet, "gate"), "its params differ; spill rule is off, not load_min\n")
    shows(fleet, "set", "policy", "by=in_flight")
    shows(fleet, "spill", "default")
    has(shows(fleet, "gate"), "what was judged is in force as policy")
    -- The baseline, too, has params, and shares the policy's spill rule.
    assert.is_false(gate_of(fleet).baseline_judged)
    has(shows(fleet, "gate"), "prefix_affinity, with its params and spill rule, is not what it")
    write(file, envelope({ ("a"):rep(16) }, { candidate = candidate, against = candidate }))
    shows(fleet, "gate", file)
    assert.is_true(gate_of(fleet).baseline_judged)
  end)

  it("is read beside traffic, and only from files that end", function()
    local fleet = start({ policy = "session_affinity" })
    local keys = {}
    for i = 1, 200000 do keys[i] = ("%016x"):format(i) end
    local file = write(fleet.folder .. "/gate.json", envelope(keys))
    local function load() return http.connect(fleet.admin_address) end
    local request = { path = "/admin/gate", body = { file = file } }
    -- A second one that is asked for while the first is read: where the loop read it, it would
    -- never see that. This process may be kept waiting in between, so it tries again.
    local refused
    loop.wait(function()
      local first, second = load(), load()
      first:begin(request)
      second:begin(request)
      local answers = { first:finish(10), second:finish(10) }
      first:close()
      second:close()
      table.sort(answers, function(a, b) return a.status < b.status end)
      assert.equal(200, answers[1].status)
      refused = answers[2].status == 409 and answers[2]
      return refused
    end, 20, "a gate to be asked for while one is read")
    has(refused:body(), "another gate is being read")
    assert.equal(200000, gate_of(fleet).keys)

    local pipe = fleet.folder .. "/pipe"
    assert(posix_stat.mkfifo(pipe, 384))
    for path, what in pairs({ ["/dev/zero"] = "a device", [pipe] = "a pipe",
      [fleet.folder] = "a directory" }) do
      local code, _, err = ctl(fleet, "gate", path)
      assert.equal(1, code)
      has(err, ("cannot read %s: it is %s"):format(path, what))
    end
    local endless = write(fleet.folder .. "/endless.json",
      envelope({ ("a"):rep(16) }, { against = { name = "/dev/zero" } }))
    local code, _, err = ctl(fleet, "gate", endless)
    assert.equal(1, code)
    has(err, "baseline: cannot read /dev/zero: it is a device")
    assert.equal(file, gate_of(fleet).file)
    -- Whoever asked may be gone when it is read, and so may the router.
    local gone = load()
    gone:begin(request)
    gone:reset()
    load():begin(request)
    fleet:stop()
  end)

  it("is there from the start, of a file in the configuration", function()
    local folder = Fleet.new_folder()
    local file = write(folder .. "/gate.json", envelope({ ("a"):rep(16) }))
    local fleet = start({ policy = "session_affinity", gate = { file = file } })
    local gate = gate_of(fleet)
    assert.equal(file, gate.file)
    assert.equal(1, gate.keys)
    Fleet.remove_folder(folder)

    -- What vouches for nothing changes nothing.
    local keep = write(fleet.folder .. "/keep.json",
      envelope({ ("a"):rep(16) }, { verdict = "keep" }))
    local function refused(path, words)
      local code, out, err = ctl(fleet, "gate", path)
      assert.same({ 1, "" }, { code, out })
      has(err, words)
    end
    refused(keep, "the verdict of this gate is not enable")
    refused(fleet.folder .. "/nosuch.json", "nosuch.json")
    local strange = write(fleet.folder .. "/strange.json",
      envelope({ ("a"):rep(16) }, { against = { name = "nosuch" } }))
    refused(strange, "baseline: ")
    assert.same(gate.file, gate_of(fleet).file)
  end)
end)

describe("a canary of routing keys", function()
  after_each(finish)

  it("decides all sessions of a key, or none", function()
    local fleet = start({ policy = "least_outstanding", routing = { by = "key", key = "x-shop" },
      canary = { policy = "round_robin", share = 0.5, by = "key" } })
    local client = fleet:connect()
    for i = 1, 80 do
      local answer = client:request(Fleet.chat_request("Hello",
        { model = "emulated", max_tokens = 1 },
        { "x-session-id: s" .. i, "x-shop: shop" .. i % 20 }))
      assert.equal(200, answer.status)
    end
    local by_key, keys, canaries = {}, 0, 0
    for _, row in ipairs(fleet:rows(80)) do
      local is_canary = row.canary == true
      assert.equal(is_canary and "round_robin" or "least_outstanding", row.policy.name)
      if by_key[row.routing_key] == nil then
        by_key[row.routing_key], keys = is_canary, keys + 1
        canaries = canaries + (is_canary and 1 or 0)
      end
      assert.equal(by_key[row.routing_key], is_canary)
    end
    assert.equal(20, keys)
    -- 20 draws at 0.5: outside of this once in twenty thousand seeds, and the seed is fixed.
    assert.is_true(canaries >= 2 and canaries <= 18, canaries .. " canaries")
    has(shows(fleet, "status"), "50 % of routing keys")
  end)
end)
