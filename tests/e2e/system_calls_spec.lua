-- What a proxied request costs in system calls of the loop's thread: two reads and two writes, and
-- the polls and timers of many requests together. The count does not move with the machine's load.
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local process = require("e2e.support.process")

local REQUESTS_AT_LEAST = 500
local CALLS_A_REQUEST = 4.2

local function run(argv, folder, name)
  local path = folder .. "/" .. name
  return process.start(argv, { out = path .. ".out", err = path .. ".err" })
end

---calls by name, from the table that `strace -c` prints
local function read_counts(text)
  local counts, total = {}, 0
  for line in text:gmatch("[^\n]+") do
    local calls, name = line:match("^%s*[%d.]+%s+[%d.]+%s+%d+%s+(%d+)%s+%d*%s*([%w_]+)$")
    if calls and name ~= "total" then
      counts[name] = tonumber(calls)
      total = total + tonumber(calls)
    end
  end
  return counts, total
end

describe("a proxied request at 64 connections", function()
  after_each(Fleet.finish)

  it("takes at most 4.2 system calls of the loop's thread", function()
    local folder = os.tmpname()
    os.remove(folder)
    assert(os.execute("mkdir " .. folder))
    local fleet = Fleet.start({
      replicas = Load.replicas(2),
      config = { policy = "prefix_affinity", health = { interval_ms = 1000 } },
    })
    Fleet.write(folder .. "/chat.lua", [[
wrk.method = "POST"
wrk.headers["Content-Type"] = "application/json"
wrk.body = '{"model":"bench","messages":[{"role":"user","content":"'
  .. ("parcel depot "):rep(150) .. '"}]}'
]])
    local load = run({ "wrk", "-t1", "-c64", "-d3s", "-s", folder .. "/chat.lua",
      "http://" .. fleet.address .. "/v1/chat/completions" }, folder, "wrk")
    loop.sleep(0.7)
    local trace = run({ "strace", "-c", "-o", folder .. "/counts", "-p",
      tostring(fleet.router.pid) }, folder, "strace")
    loop.sleep(1.5)
    trace:signal(2)
    trace:wait(5)
    local how, code = load:wait(10)
    assert.same({ "exited", 0 }, { how, code })
    assert.is_nil(load:stdout():find("Non%-2xx"), load:stdout())
    local counts, total = read_counts(Fleet.read(folder .. "/counts"))
    -- Each request is two writes, one to the replica and one to the client.
    local requests = ((counts.sendto or 0) + (counts.sendmsg or 0)) / 2
    assert.is_true(requests >= REQUESTS_AT_LEAST, Fleet.read(folder .. "/counts"))
    assert.is_true(total / requests <= CALLS_A_REQUEST,
      ("%.3f calls a request\n%s"):format(total / requests, Fleet.read(folder .. "/counts")))
    os.execute("rm -rf " .. folder)
  end)
end)
