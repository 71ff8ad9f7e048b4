-- Much at once, for as long as one likes: clients that give up in every phase while replicas break,
-- flap, come and go and policies change under them; and clients that hold what they have, beside
-- others who must not notice. What is checked is what is left: a row for each request, and nothing
-- else.
local cjson = require("cjson")
local chaos = require("e2e.support.chaos")
local dirent = require("posix.dirent")
local disturb = require("e2e.support.disturb")
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")

local MB = 1048576

local function descriptors(fleet)
  local count = 0
  for name in dirent.files(("/proc/%d/fd"):format(fleet.router.pid)) do
    count = count + (name:find("^%d") and 1 or 0)
  end
  return count
end

-- One outcome, and all else agrees with it.
local function check_row(row)
  local status, upstream = row.status, row.upstream_status
  if row.outcome == "success" then
    assert.is_true(status < 400 and status == upstream and not row.error)
  elseif row.outcome == "failed" then
    assert.is_true(status == upstream and (status >= 400 or row.error == "error_in_answer"))
  elseif row.outcome == "cancelled" then
    assert.is_true(row.error == "client_gone" and (not status or status == upstream))
  else
    assert.equal("dropped", row.outcome)
    assert.is_true(row.error and row.error ~= "client_gone")
    assert.is_true(status == upstream or status >= 400)
  end
end

-- The rows, by request id; each id and each sequence number once.
local function read_rows(fleet, count)
  local by_id, outcomes, sequences = {}, {}, {}
  local rows = 0
  for line in io.lines(fleet.folder .. "/rows.jsonl") do
    local row = cjson.decode(line)
    rows = rows + 1
    assert.is_nil(by_id[row.request_id], row.request_id .. " has two rows")
    assert.is_nil(sequences[row.sequence])
    local ok = pcall(check_row, row)
    assert.is_true(ok, line)
    by_id[row.request_id], sequences[row.sequence] = row, true
    outcomes[row.outcome] = (outcomes[row.outcome] or 0) + 1
  end
  assert.equal(count, rows)
  return by_id, outcomes
end

local UNSENT = { connected = true, head_half = true, head_sent = true, body_half = true }

-- What a client saw, and what the router says of it.
local function check_pair(phase, verdict, status, row)
  if verdict == "whole" then
    assert(row, "no row")
    assert.equal(status, row.status)
    if status < 400 then
      assert.is_true(row.outcome == "success" or row.error == "error_in_answer", row.error)
    else
      assert.is_true(row.outcome == "failed" or row.outcome == "dropped", row.outcome)
    end
    assert.equal(row.outcome == "dropped", row.replica == nil or row.upstream_status == nil)
  elseif verdict == "cut" then
    assert(row, "no row")
    assert.equal("dropped", row.outcome)
    assert.is_truthy(row.error)
  elseif verdict == "aborted" and UNSENT[phase] then
    assert(not row, "a row for a request that was never whole")
  else
    -- Its last bytes may have died with its connection; or it waited behind one that was cut.
    assert.is_true(verdict == "aborted" or verdict == "none", verdict)
  end
end

describe("the soak", function()
  after_each(Peers.finish)

  it("leaves one row for each request, one outcome, nothing in flight, no descriptor", function()
    local emulator = Peers.emulator(4, "--time-scale", "15", "--keep-alive", "0.7")
    local capacity, replicas = 14, {}
    for i, url in ipairs(emulator.urls) do replicas[i] = { url = url, capacity = capacity } end
    local fleet = Fleet.start({ replicas = 0, policies = { soak = disturb.policy }, config = {
      replicas = replicas,
      queue = { max = 30, deadline_ms = 60, order = "shortest" },
      policy = "soak",
      shadow = { "prefix_affinity" },
      health = { interval_ms = 20, timeout_ms = 200, ramp_ms = 60 },
      timeouts = {
        connect_ms = 1000, first_byte_ms = 1500, idle_ms = 700, total_ms = 15000,
        client_stall_ms = 3000, pool_idle_ms = 500,
      },
      limits = { replicas = 8 }, models = { refresh_ms = 500 }, rows = { max_bytes = 1e9 },
      log_level = "error",
    } })
    fleet:wait_ready()
    local requests = Peers.size(15000, 100000)
    local before = descriptors(fleet)
    local rss = fleet.router:rss()
    local clients = chaos.start(fleet, {
      requests = requests, concurrency = 64, abort = 0.5, seed = 100, seconds = 900,
    })
    local disturbing = disturb.new(fleet, emulator, capacity, 4)
    while clients:running() do
      disturbing:step()
      loop.sleep(0.015)
    end
    disturbing:settle()
    local sums = clients:finish()
    assert.equal(requests, sums.requests)
    assert.equal(0, sums.unfinished)
    assert.equal(0, sums.broken)
    assert.equal(0, sums.misdirected)
    assert.equal(0, sums.connect_failed)

    local status = fleet:wait_idle(5)
    emulator:wait_idle(5)
    local outcomes = status.requests.outcomes
    assert.equal(status.requests.received,
      outcomes.success + outcomes.failed + outcomes.dropped + outcomes.cancelled)
    loop.wait(function()
      return fleet:admin("/admin/status").rows.written == status.requests.received
    end, 3, "all rows")
    local rows, by_outcome = read_rows(fleet, status.requests.received)
    for outcome, count in pairs(by_outcome) do assert.equal(outcomes[outcome], count) end
    local seen = 0
    clients:each(function(id, phase, verdict, code)
      local ok, why = pcall(check_pair, phase, verdict, code, rows[id])
      if not ok then
        error(("%s %s %s %d: %s: %s"):format(id, phase, verdict, code,
          type(why) == "table" and cjson.encode(why.message or "differs") or tostring(why),
          rows[id] and cjson.encode(rows[id]) or "no row"), 0)
      end
      seen = seen + (rows[id] and 1 or 0)
      rows[id] = nil
    end)
    assert.is_nil(next(rows), "a row of nobody's request")
    assert.equal(status.requests.received, seen)
    -- It was a soak: of everything there was something.
    for _, outcome in ipairs({ "success", "failed", "dropped", "cancelled" }) do
      assert.is_true(outcomes[outcome] > requests / 1000, outcome .. " " .. outcomes[outcome])
    end
    assert.is_true(outcomes.success > requests * 0.2, outcomes.success .. " successes")
    assert.is_true(status.decisions.moves > 10)
    assert.is_true(status.requests.rejections.queue_full > 0)
    assert.is_true(status.requests.rejections.queue_deadline > 0)
    assert.is_true(status.exchanges.stale_resends > 0)

    -- Everybody is back, and the router is what it was.
    fleet:wait_ready()
    assert.equal(200, fleet:chat("Hello", { max_tokens = 1 }).status)
    loop.wait(function() return descriptors(fleet) <= before end, 5,
      ("%d descriptors to become %d"):format(descriptors(fleet), before))
    if Peers.full then
      print(("soak: %s disturbances %s RSS %.1f -> %.1f MB, descriptors %d -> %d, outcomes %s, "
        .. "moves %d, stale %d"):format(cjson.encode(sums), cjson.encode(disturbing.done),
        rss / MB, fleet.router:rss() / MB, before, descriptors(fleet), cjson.encode(outcomes),
        status.decisions.moves, status.exchanges.stale_resends))
    end
  end)

  it("of clients that stop reading, vanish and trickle is not noticed by others", function()
    local emulator = Peers.emulator(1, "--time-scale", "40")
    emulator:fault("huge;bytes=20000000;marker=HUGE", 1)
    local replicas = { { url = emulator.urls[1] } }
    for _, url in ipairs(Load.replicas(2)) do replicas[#replicas + 1] = { url = url } end
    local fleet = Fleet.start({ replicas = 0, config = { replicas = replicas, timeouts = {
      client_body_ms = 10000,
    } } })
    fleet:wait_ready()
    -- Short windows, many of them, by turns; of each kind the quarter that the machine's other work
    -- has disturbed least counts.
    local rounds, windows, seconds = Peers.size(2, 4), 5, Peers.size(0.5, 3)
    local quiet, hostile = {}, {}
    local function measure(into)
      for _ = 1, windows do
        local result = Load.start(fleet, { rate = 400, seconds = seconds, bytes = 2000 }):finish()
        assert.equal(0, result.failed)
        into[#into + 1] = result.latency_p99_us
      end
    end
    local held = 0
    for round = 1, rounds do
      measure(quiet)
      local others = chaos.start(fleet, {
        requests = 1000000, concurrency = 100, hostile = true, seed = round, hold = 4,
        seconds = windows * seconds * 1.5 + 1,
      })
      loop.sleep(1)
      local open = fleet:admin("/admin/status")
      held = math.max(held, open.listeners[1].open)
      measure(hostile)
      others:finish()
    end
    assert.is_true(held >= 90, held .. " of them")
    table.sort(quiet)
    table.sort(hostile)
    local shown = ("p99 alone %s us, beside them %s us"):format(cjson.encode(quiet),
      cjson.encode(hostile))
    local quarter = math.ceil(#quiet / 4)
    assert.is_true(hostile[quarter] <= 2 * quiet[quarter] + 200, shown)
    assert.is_true(Peers.grown(fleet, 0) < 100 * MB)
    fleet:wait_idle(5)
    emulator:wait_idle(5)
    if Peers.full then print("hostile clients: " .. shown) end
  end)
end)
