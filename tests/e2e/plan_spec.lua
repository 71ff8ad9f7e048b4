-- The plan of routing keys in a running router: made from traffic or a file, shown, withheld.
local cjson = require("cjson")
local check = require("e2e.support.check")
local Command = require("e2e.support.command")
local Fleet = require("e2e.support.fleet")
local http = require("e2e.support.http")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")

local DONE, REFUSED, USAGE = Command.DONE, Command.REFUSED, Command.USAGE
local kvroute, has = Command.run, Command.has

local function shows(fleet, ...)
  return Command.shows(fleet, "plan", ...)
end

local function start(plan, options)
  options = options or {}
  return Fleet.start({
    replicas = options.replicas or 3,
    script = Replica.answers(),
    ready = options.ready,
    config = {
      policy = options.policy or "cacheroute",
      shadow = options.shadow,
      routing = { by = "key", key = "shard" },
      plan = plan,
    },
  })
end

-- Requests of a shard; the replica and the reason of the last.
local function ask(fleet, shard, times)
  local answer
  for _ = 1, times or 1 do answer = fleet:chat("Hello", nil, { "Shard: " .. shard }) end
  assert.equal(200, answer.status)
  return answer:header("x-kvroute-replica"), answer:header("x-kvroute-reason")
end

local function asks(fleet, times)
  for shard, count in pairs(times) do ask(fleet, shard, count) end
end

local function wait_plan(fleet, what, done)
  local state
  loop.wait(function()
    state = fleet:admin("/admin/plan")
    return done(state)
  end, 5, what)
  return state
end

local function write_plan(fleet, name, lines)
  local path = fleet.folder .. "/" .. name
  Fleet.write(path, ("# kvroute plan 2, %d keys\nkey,rate,destinations\n"):format(#lines)
    .. table.concat(lines, "\n") .. "\n")
  return path
end

describe("a plan of live traffic", function()
  after_each(Fleet.finish)

  it("is made every interval, decides, and is told of", function()
    local fleet = start({ interval_s = 0.05, slots = 10 })
    assert.equal("unplanned", select(2, ask(fleet, "a")))
    asks(fleet, { a = 8, b = 6, c = 4, d = 2 })
    local state = wait_plan(fleet, "four keys to be planned", function(it)
      return it.plan ~= cjson.null and it.plan.admitted == 4
    end)
    assert.same({ 4, 4, 0 }, { state.plan.keys, state.plan.copies, state.plan.tail_rate })
    assert.equal(3, #state.plan.destinations)
    assert.is_true(state.needed)
    local keys = 0
    for _, each in ipairs(state.plan.destinations) do
      assert.truthy(fleet:replica(each.replica))
      keys = keys + each.keys
    end
    assert.equal(4, keys)
    -- The three hottest keys have a replica each, and stay there.
    local places = {}
    for _, shard in ipairs({ "a", "b", "c" }) do
      local place, reason = ask(fleet, shard)
      assert.equal("planned", reason)
      assert.is_nil(places[place])
      places[place] = shard
      for _ = 1, 5 do assert.same({ place, "planned" }, { ask(fleet, shard) }) end
    end
    assert.equal("unplanned", select(2, ask(fleet, "new")))
    local page = fleet:metrics_page()
    has(page, 'kvroute_plan_decisions_total{plan="planned"} ')
    has(page, 'kvroute_plannings_total{result="installed"} ')
    assert.is_true(tonumber(page:match("\nkvroute_plan_admitted_keys (%d+)")) >= 4)
    assert.is_true(tonumber(page:match("\nkvroute_plan_imbalance_ratio (%S+)")) >= 1)
    local out = shows(fleet)
    has(out, "a plan is made every 0.05 s")
    has(out, " s of traffic, in force for ")
    for _, replica in ipairs(fleet.replicas) do has(out, replica.name) end
    local decoded = cjson.decode((select(2, kvroute(fleet, "ctl", "--json", "plan"))))
    assert.equal(3, #decoded.plan.destinations)
  end)

  it("is made when asked for, and says what it changed", function()
    local fleet = start({ slots = 10 })
    has(shows(fleet), "no plan is in force")
    local code, _, err = kvroute(fleet, "ctl", "plan", "now")
    assert.equal(REFUSED, code)
    has(err, "no request with a routing key came within the window")
    check.api_error(fleet:admin_answer("/admin/plan/now", {}), 409, "not_possible_now")
    asks(fleet, { a = 3, b = 2 })
    has(shows(fleet, "now"), "2 of 2 keys, with 100.0 % of the rate")
    local first = fleet:admin("/admin/plan")
    assert.same({ "installed", 2, 0, 1 }, { first.last.result, first.last.change.added,
      first.last.change.removed, first.last.change.churn })
    -- The same keys at the same places: nothing is installed.
    asks(fleet, { a = 3, b = 2 })
    has(shows(fleet, "now"), "it places all keys as the last one")
    asks(fleet, { c = 2 })
    local third = fleet:admin("/admin/plan/now", {})
    assert.same({ "installed", 2, 1, 0 }, { third.last.result, third.last.change.kept,
      third.last.change.added, third.last.change.removed })
    assert.same({ 2, 1, 2 }, { third.plannings.installed, third.plannings.same,
      third.plannings.failed })
    assert.equal(USAGE, (kvroute(fleet, "ctl", "plan", "soon")))
  end)

  it("does not split a key of whose rate a moment has told", function()
    local fleet = start({ slots = 10, q_cap = 2 })
    ask(fleet, "a", 12)
    local state = fleet:admin("/admin/plan/now", {})
    assert.same({ 1, 0 }, { state.plan.copies, state.plan.split })
    assert.is_true(state.plan.admitted_rate <= 12)
    -- So many are enough to tell, whatever time they have taken.
    ask(fleet, "a", 60)
    state = fleet:admin("/admin/plan/now", {})
    assert.equal(72, math.floor(state.plan.admitted_rate * state.plan.window_s + 0.5))
    assert.is_true(state.plan.copies >= (state.plan.admitted_rate > 2 and 2 or 1))
  end)

  it("is shown by an explanation, candidate by candidate", function()
    local fleet = start({ slots = 10 })
    ask(fleet, "a", 3)
    fleet:admin("/admin/plan/now", {})
    local place = ask(fleet, "a")
    local explained = fleet:admin("/admin/explain", { headers = { Shard = "a" },
      body = cjson.decode(Fleet.chat("Hello")) })
    assert.equal(1, explained.view.planned)
    for _, candidate in ipairs(explained.candidates) do
      assert.equal(candidate.replica == place and 1 or 0, candidate.assigned)
    end
    assert.same({ place, "planned" }, { explained.replica, explained.reason })
    Fleet.write(fleet.folder .. "/chat.json", Fleet.chat("Hello"))
    local code, out = kvroute(fleet, "ctl", "explain", "--header", "Shard: a",
      fleet.folder .. "/chat.json")
    assert.equal(DONE, code)
    has(out, "\nplan      " .. place .. "\n")
  end)

  it("outlives reloads and switches of policy and spill rule", function()
    local fleet = start({ slots = 10 })
    ask(fleet, "a", 3)
    local before = fleet:admin("/admin/plan/now", {})
    local place = ask(fleet, "a")
    fleet:admin("/admin/reload", {})
    fleet:admin("/admin/spill", { name = "load_min" })
    assert.same({ place, "planned" }, { ask(fleet, "a") })
    fleet:admin("/admin/policy", { name = "p2c" })
    assert.is_false(fleet:admin("/admin/plan").needed)
    has(shows(fleet), "no policy in force needs a plan")
    fleet:admin("/admin/policy", { name = "cacheroute" })
    assert.same({ place, "planned" }, { ask(fleet, "a") })
    assert.equal(1, fleet:admin("/admin/plan").plannings.installed)
    assert.same(before.plan.destinations, fleet:admin("/admin/plan").plan.destinations)
  end)

  it("is about replicas by name: one that leaves and comes back has its keys again", function()
    local fleet = start({ slots = 10 })
    ask(fleet, "a", 3)
    fleet:admin("/admin/plan/now", {})
    local place = ask(fleet, "a")
    fleet:admin("/admin/replicas/remove", { replica = place })
    local other, reason = ask(fleet, "a")
    assert.not_equal(place, other)
    assert.equal("planned_away", reason)
    has(shows(fleet), "(has left)")
    fleet:admin("/admin/replicas", { url = "http://" .. place })
    fleet:wait_ready()
    assert.same({ place, "planned" }, { ask(fleet, "a") })
    -- The next plan is of those that take requests.
    fleet:admin("/admin/replicas/drain", { replica = place })
    assert.equal("planned_away", select(2, ask(fleet, "a")))
    has(shows(fleet), place .. " (away)")
    local state = fleet:admin("/admin/plan/now", {})
    assert.equal(2, #state.plan.destinations)
    assert.equal("planned", select(2, ask(fleet, "a")))
  end)

  it("is not installed where its warm-up costs more than it saves, and says so", function()
    local fleet = start({ slots = 10, life_s = 1e-9 })
    ask(fleet, "a", 3)
    fleet:admin("/admin/plan/now", {})
    ask(fleet, "b", 9)
    -- The hotter key is placed first, where the other one was: that has to move.
    local state = fleet:admin("/admin/plan/now", {})
    assert.equal("not_worth", state.last.result)
    assert.equal(1, state.last.change.keys_moved)
    assert.truthy(state.last.why:find("^warming its copies up costs %d+ tokens"))
    has(shows(fleet), "was not worth it; it took ")
    assert.equal(1, state.plan.admitted)
    assert.is_true(state.last.change.warmup_tokens > state.last.change.staleness_tokens)
  end)

  it("can be withheld, and comes again", function()
    local fleet = start({ slots = 10, interval_s = 0.05 })
    ask(fleet, "a", 3)
    wait_plan(fleet, "a plan", function(it) return it.plan ~= cjson.null end)
    assert.equal("planned", select(2, ask(fleet, "a")))
    local out = shows(fleet, "off", "the workload flipped")
    has(out, "no plan is in force")
    has(out, "WITHHELD: the workload flipped")
    assert.equal("unplanned", select(2, ask(fleet, "a")))
    local state = wait_plan(fleet, "a plan to be withheld", function(it)
      return it.last.result == "withheld"
    end)
    assert.equal(cjson.null, state.plan)
    assert.equal(1, state.plannings.withdrawals)
    local err = check.api_error(fleet:admin_answer("/admin/plan/now", {}), 409,
      "not_possible_now")
    has(err.message, "the workload flipped")
    has(shows(fleet, "on"), "plans are withheld: the workload flipped")
    wait_plan(fleet, "a plan again", function(it) return it.plan ~= cjson.null end)
    assert.equal("planned", select(2, ask(fleet, "a")))
  end)

  it("is told of once where no requests come", function()
    local fleet = start({ interval_s = 0.02 })
    wait_plan(fleet, "intervals", function(it) return it.plannings.failed >= 5 end)
    local _, told = fleet.router:stderr():gsub("plan: no request with a routing key", "")
    assert.equal(1, told)
  end)

  it("is made while a shadow needs it, and acts for that one alone", function()
    local fleet = start({ slots = 10 }, { policy = "round_robin", shadow = "cacheroute" })
    ask(fleet, "a", 3)
    fleet:admin("/admin/plan/now", {})
    ask(fleet, "a", 3)
    for i, row in ipairs(fleet:rows(6)) do
      assert.equal("round_robin", row.reason)
      assert.equal(i <= 3 and "unplanned" or "planned", row.shadow[1].reason)
    end
  end)
end)

describe("a plan of a file", function()
  after_each(Fleet.finish)

  it("is what kvroute plan has written, from the start and later", function()
    local fleet = start({})
    local rates = fleet.folder .. "/rates.csv"
    Fleet.write(rates, "key,rate\nhot,9\nwarm,4\ncool,1\n")
    local plan = fleet.folder .. "/plan.csv"
    local argv = { "plan", "--rates", rates, "--slots", "2", "--q-cap", "5", "--out", plan }
    for _, replica in ipairs(fleet.replicas) do
      argv[#argv + 1] = "--to"
      argv[#argv + 1] = replica.name
    end
    assert.equal(DONE, (kvroute(fleet, unpack(argv))))
    local out = shows(fleet, "load", plan)
    has(out, "3 of 3 keys, with 100.0 % of the rate of 14/s; 1 split, 4 copies")
    has(out, "plan.csv, in force for ")
    local placed = {}
    for shard, to in Fleet.read(plan):gmatch("(%a+),%d+,([^\n]+)") do placed[shard] = to end
    for shard, to in pairs(placed) do
      for _ = 1, 4 do
        local place, reason = ask(fleet, shard)
        assert.equal("planned", reason)
        has(to, place)
      end
    end
    -- Another file over it: churn is told, and requests go by it.
    local names = { fleet.replicas[1].name, fleet.replicas[2].name, fleet.replicas[3].name }
    local second = write_plan(fleet, "second.csv", { "hot,1," .. names[3], "other,1," .. names[1] })
    local state = fleet:admin("/admin/plan", { file = second })
    assert.same({ 1, 1 }, { state.last.change.keys_both, state.last.change.keys_new })
    assert.same({ names[3], "planned" }, { ask(fleet, "hot") })
    assert.equal("unplanned", select(2, ask(fleet, "warm")))
  end)

  it("comes from the rows of a router just as well", function()
    local fleet = start({})
    asks(fleet, { a = 6, b = 2 })
    fleet:rows(8)
    local plan = fleet.folder .. "/plan.csv"
    local argv = { "plan", "--rows", fleet.folder .. "/rows.jsonl", "--slots", "1", "--out", plan }
    for _, replica in ipairs(fleet.replicas) do
      argv[#argv + 1] = "--to=" .. replica.name
    end
    local code, _, err = kvroute(fleet, unpack(argv))
    assert.same({ DONE, "" }, { code, err })
    shows(fleet, "load", plan)
    local text = Fleet.read(plan)
    for i, shard in ipairs({ "a", "b" }) do
      local place, reason = ask(fleet, shard)
      assert.equal("planned", reason)
      has(text, fleet:row(8 + i).routing_key .. ",")
      assert.equal(place, text:match(fleet:row(8 + i).routing_key .. ",[%d.e+-]+,(%S+)"))
    end
  end)

  it("is there before the first request, and one that is bad lets nothing start", function()
    local fleet = start({}, { replicas = 2 })
    local names = { fleet.replicas[1].name, fleet.replicas[2].name }
    local good = write_plan(fleet, "good.csv", { "a,1," .. names[2] })
    local bad = write_plan(fleet, "bad.csv", { "a,1," .. names[1], "b,1,nowhere:1" })
    local function serve(...)
      return process.start({ Fleet.binary, "serve", "-c", fleet.folder .. "/kvroute.lua", "-s",
        "rows.path=", ... }, { out = fleet.folder .. "/o", err = fleet.folder .. "/e" })
    end
    local refused = serve("-s", "plan.file=" .. bad)
    assert.same({ "exited", 1 }, { refused:wait(10) })
    has(refused:stderr(), ("plan.file: %s: line 4: destinations are replicas that are here "
      .. 'and not draining, not "nowhere:1"'):format(bad))
    local second = serve("-s", "plan.file=" .. good)
    local address = second:wait_line("kvroute serving on (%S+)", 10)
    local answer
    loop.wait(function()
      answer = http.request(address, Fleet.chat_request("Hello", nil, { "Shard: a" }))
      return answer.status == 200 and answer:header("x-kvroute-reason") == "planned"
    end, 5, "a planned answer")
    assert.equal(names[2], answer:header("x-kvroute-replica"))
    second:kill()
  end)

  it("that is bad changes nothing, and says why in the API's shape", function()
    local fleet = start({})
    local name = fleet.replicas[1].name
    fleet:admin("/admin/plan", { file = write_plan(fleet, "good.csv", { "a,1," .. name }) })
    local cases = {
      { { "a,x," .. name }, "line 3: a rate is a number from 0 to 1e15, not \"x\"" },
      { { "a,1," .. name, "a,1," .. name }, "line 4: the key of line 3 again" },
      { { "a,1," }, "line 3: a key has destinations" },
      { {}, "line 1: a plan has keys, not \"# kvroute plan 2, 0 keys\"" },
      { { "a,1," .. name .. "\n" .. "b,1," .. name }, "line 4: the plan has more keys" },
    }
    for i, case in ipairs(cases) do
      local path = write_plan(fleet, ("bad%d.csv"):format(i), case[1])
      local err = check.api_error(fleet:admin_answer("/admin/plan", { file = path }), 400,
        "invalid_value")
      has(err.message, path .. ": " .. case[2])
    end
    check.api_error(fleet:admin_answer("/admin/plan", { file = fleet.folder .. "/none.csv" }), 404,
      "not_found")
    local err = check.api_error(fleet:admin_answer("/admin/plan", {}), 400, "invalid_value")
    assert.equal("file", err.param)
    local code, _, said = kvroute(fleet, "ctl", "plan", "load", fleet.folder .. "/none.csv")
    assert.equal(REFUSED, code)
    has(said, "none.csv")
    local state = fleet:admin("/admin/plan")
    assert.equal("failed", state.last.result)
    has(state.last.why, "none.csv")
    assert.same({ name, "planned" }, { ask(fleet, "a") })
  end)

  it("that was cut is noticed; one of version 1 does not tell, which is said", function()
    local fleet = start({})
    local name = fleet.replicas[1].name
    local whole = Fleet.read(write_plan(fleet, "whole.csv", { "a,1," .. name, "b,1," .. name }))
    local cut = fleet.folder .. "/cut.csv"
    Fleet.write(cut, whole:match("^(.-\na[^\n]*\n)"))
    local code, _, err = kvroute(fleet, "ctl", "plan", "load", cut)
    assert.equal(REFUSED, code)
    has(err, cut .. ": line 3: the plan ends with 1 of 2 keys: it has been cut")
    Fleet.write(cut, whole:sub(1, -2))
    has(select(3, kvroute(fleet, "ctl", "plan", "load", cut)),
      cut .. ": line 4: the last line has no end: it has been cut")
    local old = fleet.folder .. "/old.csv"
    Fleet.write(old, whole:match("\n(.*)"))
    has(shows(fleet, "load", old), "its version 1 does not say how many keys it has")
    has(fleet.router:stderr(), "plan: " .. old .. ": its version 1 does not say")
    assert.same({ name, "planned" }, { ask(fleet, "b") })
    Fleet.write(old, "key,rate,destinations\n")
    has(select(3, kvroute(fleet, "ctl", "plan", "load", old)), "line 1: a plan has keys, not 0")
    has(shows(fleet, "load", fleet.folder .. "/whole.csv"), "changed nothing")
  end)
end)

describe("installing plans", function()
  after_each(Fleet.finish)

  -- A plan of 100,000 keys that no request has, one of two that have no place in common.
  local function write_large(fleet, name, from, step)
    local lines = {}
    for i = 1, 100000 do
      lines[i] = ("%016x,%g,%s"):format(i, 1000 / i, fleet.replicas[(from + step * i) % 4 + 1].name)
    end
    return write_plan(fleet, name, lines)
  end

  -- Of the load of `seconds` at 5,000 requests a second, over 100,000 keys that are the prompts'
  -- first blocks: every `swap` seconds a plan is made of what came so far, and between them the
  -- plans of 100,000 keys are put in force by turns. nil: no plan at all.
  local function load_for(seconds, swap)
    local fleet = Fleet.start({ replicas = Load.replicas(4), config = {
      policy = "cacheroute",
      routing = { by = "blocks", blocks = 4 },
      keys = { cells = 600000 },
      plan = { interval_s = swap, slots = 100000 },
      rows = { path = "" },
    } })
    fleet.rows_elsewhere = true
    local files = swap and { write_large(fleet, "a.csv", 0, 1), write_large(fleet, "b.csv", 1, 1) }
    local load, loads = Load.start(fleet, { rate = 5000, seconds = seconds, bytes = 600,
      prompts = 400000 }), 0
    while load:running() and swap do
      loads = loads + 1
      loop.sleep(swap)
      local answer = http.request(fleet.admin_address, { path = "/admin/plan",
        body = { file = files[loads % 2 + 1] } }, 30)
      assert.equal(200, answer.status)
      -- A few keys are one in 32 bits.
      assert.is_true(cjson.decode(answer:body()).last.keys > 99950)
    end
    local result = load:finish(seconds + 60)
    fleet:wait_idle(20)
    return result, fleet:admin("/admin/plan"), loads
  end

  it("under 5,000 requests a second holds none of them up for a millisecond", function()
    local full = os.getenv("KVR_FULL")
    local seconds = full and 20 or 3
    local result, state, loads = load_for(seconds, full and 1 or 0.2)
    assert.same({ seconds * 5000, seconds * 5000, 0 }, { result.sent, result.answered,
      result.failed })
    assert.is_true(loads >= 1, "no plan from a file")
    assert.is_true(state.plannings.installed > loads, "none of traffic")
    assert.is_true(state.decisions.planned + state.decisions.unplanned > 0, "no plan was seen")
    -- The loop's own CPU time, which is what requests wait for whatever else the machine does.
    assert.is_true(state.plannings.install_ms_max < 1, "install " .. state.plannings.install_ms_max)
    assert.is_true(state.plannings.piece_ms_max < 1, "piece " .. state.plannings.piece_ms_max)
    if full then
      print(("%d plans, %d of them from files of 100,000 keys; last of %d keys, %d admitted, made "
        .. "in %.0f ms; the loop's CPU time: install %.3f ms, a piece of counting %.3f ms at most; "
        .. "latency p50 %d us, p99 %d us"):format(state.plannings.installed, loads,
        state.last.keys, state.last.admitted, state.last.made_ms, state.plannings.install_ms_max,
        state.plannings.piece_ms_max, result.latency_p50_us, result.latency_p99_us))
      Fleet.finish()
      local without = load_for(seconds, nil)
      print(("without any plan: latency p50 %d us, p99 %d us"):format(without.latency_p50_us,
        without.latency_p99_us))
    end
  end)
end)
