-- Numbered cases, after public reports on other routers: what an operator does to a router that is
-- at work, and what the requests notice of it.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Peers = require("e2e.support.peers")
local Replica = require("e2e.support.replica")
local signal = require("posix.signal")

local chat_request = Fleet.chat_request

describe("a fleet at work", function()
  after_each(Peers.finish)

  it("B49 lets a replica go without losing what it holds, or giving it more", function()
    local emulator = Peers.emulator(2)
    local fleet = Peers.start(emulator, { policy = "round_robin" })
    local a, b = emulator.addresses[1], emulator.addresses[2]
    Peers.command(fleet, "replicas/drain", { replica = b })
    local clients = {}
    for i = 1, 10 do -- the last two are longer
      clients[i] = fleet:connect()
      clients[i]:begin(chat_request("Stream " .. i,
        { stream = true, max_tokens = i > 8 and 500 or 200 }))
      clients[i]:wait_body(1)
    end
    Peers.command(fleet, "replicas/restore", { replica = b })
    local drained = Peers.command(fleet, "replicas/drain", { replica = a })
    assert.equal(10, drained.in_flight)
    for i = 1, 50 do -- from the very next decision on
      local answer = fleet:chat("Hello " .. i, { max_tokens = 1 })
      assert.equal(200, answer.status)
      assert.equal(b, answer:header("x-kvroute-replica"))
    end
    for i = 1, 8 do assert.equal(200, clients[i]:finish(5).status) end
    -- Removed while two are open: they end as they would have, and then it is gone.
    assert.equal(2, fleet:replica_state(a).in_flight)
    Peers.command(fleet, "replicas/remove", { replica = a })
    for i = 9, 10 do
      local answer = clients[i]:finish(5)
      assert.is_truthy(answer:body():find("data: [DONE]", 1, true))
    end
    loop.wait(function() return fleet:replica_state(a) == nil end, 1)
    for _, row in ipairs(fleet:rows(60)) do assert.equal("success", row.outcome) end
    -- The last one draining is an answer of its own, and not for ever.
    Peers.command(fleet, "replicas/drain", { replica = b })
    local answer = fleet:chat("Hello")
    assert.equal(503, answer.status)
    assert.equal("draining", answer:json().error.code)
    Peers.command(fleet, "replicas/restore", { replica = b })
    assert.equal(200, fleet:chat("Hello", { max_tokens = 1 }).status)
  end)

  it("B51 keeps the last good text through bad ones, and takes the old one back", function()
    local function policy(reason)
      return ('return { api = 1, name = "mine", pick = function() return kvr.least(), "%s" end }')
        :format(reason)
    end
    local original = policy("original")
    local fleet = Fleet.start({
      replicas = 2, script = Replica.answers(), policies = { mine = original },
      config = { policy = "mine" },
    })
    local path = fleet:policy_path("mine")
    -- Traffic all the time: every answer is looked at.
    local client, asked = fleet:connect(), 0
    local function reason()
      local answer = client:request(chat_request("Hello"))
      assert.equal(200, answer.status)
      asked = asked + 1
      return answer:header("x-kvroute-reason")
    end
    local function state()
      return fleet:admin("/admin/scripts").scripts[1]
    end
    local function refusals()
      return Peers.metric(fleet, 'kvroute_script_refusals_total{role="policy"}')
    end
    local function refused(change, pattern)
      local before = refusals()
      change()
      loop.wait(function()
        assert.equal("original", reason())
        return refusals() > before
      end, 3, "a refusal")
      assert.is_truthy(tostring(state().error):find(pattern), state().error)
    end
    local function healed(change)
      change()
      loop.wait(function()
        assert.equal("original", reason())
        return state().error == cjson.null
      end, 3, "the error to go")
    end
    local function original_in_place() Fleet.write(path, original) end
    refused(function() Fleet.write(path, "return { api = 1,,") end, "mine%.lua:1:")
    healed(original_in_place)
    refused(function() Fleet.write(path, "\n\nerror('at load')") end, "mine%.lua:3: at load")
    healed(function() Fleet.replace(path, original) end)
    refused(function() os.remove(path) end, "mine%.lua")
    healed(original_in_place)
    assert.equal(1, state().generation) -- it never was another
    Fleet.replace(path, policy("edited"))
    loop.wait(function() return reason() == "edited" end, 1)
    Fleet.replace(path, original)
    loop.wait(function() return reason() == "original" end, 1)

    local before, began = refusals(), loop.now()
    local clients, pending = {}, {}
    for i = 1, 4 do clients[i] = fleet:connect() end
    for i = 1, 100 do
      fleet.router:signal(signal.SIGHUP)
      if i == 50 then Fleet.replace(path, "return nonsense(") end
      if i == 60 then Fleet.replace(path, original) end
      for j, each in ipairs(clients) do
        if not pending[j] or pending[j].done then
          if pending[j] then assert.equal(200, pending[j].status) end
          pending[j] = each:begin(chat_request("Hello"))
          asked = asked + 1
        end
      end
      loop.sleep(0.01)
    end
    for _, each in ipairs(clients) do assert.equal(200, each:finish().status) end
    assert.is_true(loop.now() - began < 5)
    assert.is_true(refusals() > before)
    healed(function() end)
    assert.equal(asked, fleet:admin("/admin/status").requests.outcomes.success)
    for _, row in ipairs(fleet:rows(asked)) do assert.is_nil(row.fallback) end
  end)

  it("B57 writes its rows where they belong, whatever becomes of the file", function()
    local fleet = Fleet.start({ script = Replica.answers() })
    local client, asked = fleet:connect(), 0
    local path = fleet.folder .. "/rows.jsonl"
    local function ask(count)
      for _ = 1, count do
        assert.equal(200, client:request(chat_request("Hello")).status)
        asked = asked + 1
      end
    end
    local function count_in(file)
      local count = 0
      for line in Fleet.read(file):gmatch("[^\n]*\n?") do
        if line ~= "" then
          assert.equal("success", cjson.decode(line).outcome) -- whole
          count = count + 1
        end
      end
      return count
    end
    local function rows() return fleet:admin("/admin/status").rows end
    local function is_written() return rows().written + rows().dropped == asked end
    -- Renamed, as logrotate does, while rows are being written.
    ask(100)
    assert(os.rename(path, path .. ".old"))
    local told = loop.now()
    fleet.router:signal(signal.SIGHUP)
    loop.wait(function() return Fleet.exists(path) end, 1)
    assert.is_true(loop.now() - told < 0.1, "took " .. loop.now() - told)
    ask(100)
    loop.wait(is_written)
    assert.equal(200, count_in(path .. ".old") + count_in(path))
    -- Deleted, with nobody to tell of it.
    os.remove(path)
    ask(50)
    loop.wait(is_written)
    assert.equal(50, count_in(path))
    assert.equal(0, rows().dropped)
    fleet.rows_elsewhere = true
  end)

  it("B57 and keeps the file it has while there can be no other", function()
    local folder = Fleet.new_folder()
    local path = folder .. "/rows.jsonl"
    local fleet = Fleet.start({ script = Replica.answers(), config = { rows = { path = path } } })
    fleet.rows_elsewhere = true
    local client = fleet:connect()
    local function ask(count, written)
      for _ = 1, count do assert.equal(200, client:request(chat_request("Hello")).status) end
      loop.wait(function() return fleet:admin("/admin/status").rows.written == written end)
    end
    local function lines(file) return select(2, Fleet.read(file):gsub("\n", "")) end
    ask(10, 10)
    assert(os.rename(folder, folder .. "-away"))
    fleet.router:signal(signal.SIGHUP)
    ask(10, 20)
    local rows = fleet:admin("/admin/status").rows
    assert.is_true(rows.reopen_failures >= 1)
    assert.equal(0, rows.dropped)
    assert.equal(20, lines(folder .. "-away/rows.jsonl"))
    assert.equal(0, os.execute("mkdir " .. folder))
    fleet.router:signal(signal.SIGHUP)
    loop.wait(function() return Fleet.exists(path) end, 1)
    ask(10, 30)
    assert.equal(10, lines(path))
    Fleet.remove_folder(folder)
    Fleet.remove_folder(folder .. "-away")
  end)

  it("B57 and drops rows, counted, rather than wait for a disk that is full", function()
    local fleet = Fleet.start({ script = Replica.answers(), config = {
      rows = { path = "/dev/full" }, -- every write: no space left
    } })
    fleet.rows_elsewhere = true
    local client = fleet:connect()
    local slowest = 0
    for i = 1, 200 do
      local began = loop.now()
      assert.equal(200, client:request(chat_request("Hello " .. i)).status)
      slowest = math.max(slowest, loop.now() - began)
    end
    assert.is_true(slowest < 0.2)
    loop.wait(function() return fleet:admin("/admin/status").rows.dropped == 200 end, 2)
    local rows = fleet:admin("/admin/status").rows
    assert.equal(0, rows.written)
    assert.is_true(rows.failing)
    assert.is_truthy(fleet.router:stderr():find("rows", 1, true))
    assert.is_true(#fleet.router:stderr() < 5000, "a line for each row")
    assert.is_truthy(fleet:metrics_page()
      :find("rows_dropped", 1, true))
  end)
end)
