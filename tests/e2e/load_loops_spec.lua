-- kvroute load: when it sends, closed and open, and how it ends.
local cjson = require("cjson")
local signal = require("posix.signal")
local Driver = require("e2e.support.driver")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")
local Target = require("e2e.support.target")

local function sorted_bodies(replica)
  local bodies = {}
  for i, exchange in ipairs(replica.exchanges) do bodies[i] = exchange.body end
  table.sort(bodies)
  return bodies
end

describe("an open loop", function()
  after_each(Target.finish)

  local function due_times(rows)
    local times = {}
    for i, row in ipairs(rows) do times[i] = row.due_at_ms end
    table.sort(times)
    return times
  end

  it("sends when it is time, whatever becomes of the answers", function()
    local replica = Replica.start({ script = function(exchange)
      loop.after(0.5, function() Target.stream(exchange) end) -- longer than the whole schedule
    end })
    local report, rows, status = Driver.run(replica.url, { "-r", "100", "-n", "40" })
    Target.assert_done(status)
    assert.equal(40, report.completed)
    assert.equal(40, report.max_concurrent_requests)
    assert.equal("open", report.driver)
    assert.near(0.4, report.duration, 1e-6) -- 40 / 100
    for i, due in ipairs(due_times(rows)) do assert.near((i - 1) * 10, due, 0.001) end
    for _, row in ipairs(rows) do
      assert.near(row.due_at_ms + row.late_ms, row.started_at_ms, 0.002)
      assert.is_nil(row.gap_ms)
      assert.is_true(row.e2el_ms >= 490)
    end
    assert.is_nil(report.client_gap)
    -- The replica saw them over the time that they should take.
    local first, last = replica.exchanges[1].at, replica.exchanges[40].at
    assert.is_true(last - first > 0.3)
  end)

  it("has Poisson, bursty, ramped and given times, the same ones for the same seed", function()
    local replica = Replica.start({ script = Target.stream })
    local function times(arguments)
      local all = { "-n", "60", "--time-scale", "20" }
      for _, argument in ipairs(arguments) do all[#all + 1] = argument end
      local report, rows = Driver.run(replica.url, all)
      assert.equal(60, report.completed)
      return due_times(rows)
    end
    local poisson = times { "-r", "10", "--burstiness", "1", "--seed", "3" }
    assert.same(poisson, times { "-r", "10", "--burstiness", "1", "--seed", "3" })
    assert.are_not.same(poisson, times { "-r", "10", "--burstiness", "1", "--seed", "4" })
    local ramp = times { "-r", "5", "--ramp-to", "50", "--ramp", "2" }
    assert.is_true(ramp[2] - ramp[1] > 2 * (ramp[60] - ramp[59]))
    local path = Fleet.new_folder()
    local lines = {}
    for i = 1, 60 do lines[i] = i * i end
    Fleet.write(path .. "/times", table.concat(lines, "\n") .. "\n")
    assert.same(lines, times { "--times", path .. "/times" })
    Fleet.remove_folder(path)
  end)

  it("drops what is over its bound, and says so", function()
    local replica = Replica.start({ script = function(exchange)
      loop.after(0.4, function() Target.stream(exchange) end)
    end })
    local report, rows, status = Driver.run(replica.url,
      { "-r", "200", "-n", "40", "--max-in-flight", "10" })
    assert.same({ dropped = 30 }, report.failures)
    assert.equal(10, report.completed)
    assert.equal(3, status)
    assert.equal(10, #replica.exchanges)
    assert.equal(40, #rows)
  end)

  it("replays a recorded trace: its times, sessions and shared prefixes", function()
    local folder = Fleet.new_folder()
    local lines = {}
    for i = 1, 6 do
      lines[i] = cjson.encode({ at_ms = (i - 1) * 50, session = "s" .. i % 2, input_tokens = 64 * i,
        output_tokens = 3, block_tokens = 64, blocks = { { 7, i } } })
    end
    Fleet.write(folder .. "/trace.jsonl", table.concat(lines, "\n") .. "\n")
    local replica = Replica.start({ script = Target.stream })
    local run = Driver.start(replica.url, { "--trace", folder .. "/trace.jsonl", "--set",
      "bytes_per_token=4" })
    local report, rows = run:finish()
    Fleet.remove_folder(folder)
    assert.equal(6, report.completed, run.process:stderr())
    assert.same({ 0, 50, 100, 150, 200, 250 }, due_times(rows))
    local function prompt(i)
      return cjson.decode(replica.exchanges[i].body).messages[1].content
    end
    for i = 2, 6 do
      assert.equal(256 * i, #prompt(i))
      assert.equal(prompt(i - 1), prompt(i):sub(1, 256 * (i - 1)))
    end
  end)
end)

describe("a closed loop", function()
  after_each(Target.finish)

  it("sends each user's next turn when its answer is there, in the loop's same turn", function()
    local replica = Replica.start({ script = Target.stream })
    local report, rows = Driver.run(replica.url, { "-u", "4", "-n", "200", "--think", "0" })
    assert.equal(200, report.completed)
    assert.equal("closed", report.driver)
    assert.equal(4, report.max_concurrent_requests)
    assert.equal(4, report.connections)
    assert.is_true(report.client_gap.p50_ms < 0.5)
    local turns, firsts = {}, 0
    for _, row in ipairs(rows) do
      turns[row.user] = turns[row.user] or {}
      turns[row.user][#turns[row.user] + 1] = row.user_turn
      if row.gap_ms == cjson.null then firsts = firsts + 1 end
      assert.is_nil(row.due_at_ms)
    end
    assert.equal(4, firsts)
    for user = 0, 3 do
      for i, turn in ipairs(turns[user]) do assert.equal(i - 1, turn) end
    end
  end)

  it("replays the sessions of a recorded trace, each request after the answer before", function()
    local folder, lines = Fleet.new_folder(), {}
    for i = 1, 3 do
      local session = { session = "s" .. i, at_ms = 40 * i, input_tokens = 20, output_tokens = 2 }
      for turn = 1, 3 do
        lines[#lines + 1] = cjson.encode(session)
        session.at_ms, session.think_ms, session.input_tokens = nil, 100, 20 + turn
      end
    end
    Fleet.write(folder .. "/trace.jsonl", table.concat(lines, "\n") .. "\n")
    local replica = Replica.start({ script = Target.stream })
    local run = Driver.start(replica.url, { "--trace", folder .. "/trace.jsonl", "--closed" })
    local report, rows = run:finish()
    Fleet.remove_folder(folder)
    assert.equal(9, report.completed, run.process:stderr())
    assert.equal("closed", report.driver)
    local gaps, turns = 0, {}
    for _, row in ipairs(rows) do
      turns[row.user] = (turns[row.user] or 0) + 1
      if row.gap_ms ~= cjson.null then
        gaps = gaps + 1
        assert.is_true(row.gap_ms >= 99, row.gap_ms)
      end
    end
    assert.equal(6, gaps)
    assert.same({ [0] = 3, 3, 3 }, turns)
  end)

  it("begins with its users in their order", function()
    local replica = Replica.start({ script = Target.stream })
    local _, rows = Driver.run(replica.url, { "-u", "40", "-n", "40" })
    table.sort(rows, function(a, b) return a.user < b.user end)
    for i = 2, 40 do assert.is_true(rows[i].started_at_ms >= rows[i - 1].started_at_ms) end
  end)

  it("sends equal bytes for an equal seed, and others for another epoch", function()
    local replica = Replica.start({ script = Target.stream })
    local function bodies(...)
      replica.exchanges = {}
      local report = Driver.run(replica.url, { "-u", "3", "-n", "3", ... })
      return sorted_bodies(replica), report
    end
    local one, first = bodies()
    local two, second = bodies()
    local other, third = bodies("-s", "epoch=1")
    assert.equal(3, #one)
    assert.same(one, two)
    assert.equal(first.body_hash, second.body_hash)
    assert.not_equal(first.body_hash, third.body_hash)
    assert.not_equal(first.workload, third.workload)
    for i = 1, 3 do
      assert.equal(#one[i], #other[i])
      assert.not_equal(one[i], other[i])
    end
    local decoded = cjson.decode(one[1])
    assert.equal("test-model", decoded.model) -- the endpoint's first
    assert.is_true(decoded.stream and decoded.stream_options.include_usage)
    assert.equal(64, decoded.max_tokens)
    local last = decoded.messages[#decoded.messages]
    assert.equal("user", last.role)
  end)

  it("goes on in a conversation: each turn begins with the one before", function()
    local replica = Replica.start({ script = Target.stream })
    Driver.run("http://localhost:" .. replica.port .. "/v1/", { "-u", "1", "-n", "4",
      "--think", "0", "-s", "branch_share=0" })
    local session = replica.exchanges[1].request:header("x-session-id")
    assert.truthy(session)
    local before
    for turn = 1, 4 do
      local exchange = replica.exchanges[turn]
      local messages = cjson.decode(exchange.body).messages
      assert.equal(session, exchange.request:header("x-session-id"))
      for i = 1, before and #before or 0 do assert.same(before[i], messages[i]) end
      assert.equal(turn * 2 - 1, #messages - (messages[1].role == "system" and 1 or 0))
      before = messages
    end
  end)

  it("leaves out what begins in the warm-up", function()
    local replica = Replica.start({ script = Target.stream })
    local report, rows = Driver.run(replica.url, { "-u", "2", "-d", "0.6", "--warmup", "0.3",
      "--think", "20" })
    local warm = 0
    for _, row in ipairs(rows) do
      assert.equal(row.started_at_ms < 300, row.warmup)
      if row.warmup then warm = warm + 1 end
    end
    assert.equal(warm, report.warmup_requests)
    assert.equal(#rows - warm, report.num_prompts)
    assert.is_true(warm > 4 and report.num_prompts > 4)
    assert.is_true(report.duration < 0.5)
  end)

  it("ends at a signal, with a report of what there is", function()
    local replica = Replica.start({ script = function(exchange)
      -- The rest is never answered.
      if #exchange.replica.exchanges <= 20 then Target.stream(exchange) end
    end })
    local run = Driver.start(replica.url, { "-u", "2", "-d", "600", "--think", "0" })
    loop.wait(function() return replica:count() == 22 end, 5, "22 requests")
    run.process:signal(signal.SIGINT)
    local report, rows, status = run:finish(3)
    assert.equal(130, status)
    assert.equal(20, report.completed)
    assert.equal(0, report.failed) -- we cut them ourselves
    assert.equal(2, report.cancelled)
    assert.same({ "interrupted" }, Target.flags(report))
    assert.equal(22, #rows)
    assert.is_true(loop.try(function()
      for _, conn in ipairs(replica.connections) do
        if conn.fd and not conn.ended then return false end
      end
      return true
    end, 2))
  end)
end)
