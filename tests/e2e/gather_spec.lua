-- A router that is busy with streams takes their events together (streams.gather_us), one that is
-- not takes each as it comes; whatever it does, every answer arrives whole.
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local peers = require("e2e.support.peers")
local process = require("e2e.support.process")

local EVENTS = 64 -- of an answer, written one by one as fast as the router takes them
local ROUNDS = 15

-- wrk counts what it was answered, and what of it was not whole.
local CLIENT = [[
local threads = {}
function setup(thread) threads[#threads + 1] = thread end
function init()
  answers, broken = 0, 0
  wrk.method = "POST"
  wrk.headers["Content-Type"] = "application/json"
  wrk.body = '{"model":"bench","stream":true,"messages":[{"role":"user","content":"parcels"}]}'
end
function response(status, headers, body)
  answers = answers + 1
  if status ~= 200 or #body ~= SIZE or body:sub(-14) ~= "data: [DONE]\n\n" then
    broken = broken + 1
  end
end
function done(summary)
  local errors = summary.errors
  local lost = errors.connect + errors.read + errors.write + errors.timeout
  for _, thread in ipairs(threads) do
    io.write("answers ", thread:get("answers"), " broken ", thread:get("broken") + lost, "\n")
  end
end
]]

-- So many clients ask for streams for a second; how many answers came. All must be whole.
local function ask(fleet, clients, size)
  local path = fleet.folder .. "/client"
  Fleet.write(path .. ".lua", (CLIENT:gsub("SIZE", size)))
  local client = process.start({ "wrk", "-t1", "-c" .. clients, "-d1s", "-s", path .. ".lua",
    "http://" .. fleet.address .. "/v1/chat/completions" },
    { out = path .. ".out", err = path .. ".err" })
  assert.same({ "exited", 0 }, { client:wait(20) })
  local answers, broken = client:stdout():match("answers (%d+) broken (%d+)")
  assert.equal("0", broken, client:stdout())
  return tonumber(answers)
end

local function start(config)
  local fleet = Fleet.start({
    replicas = Load.replicas(4, { "--events", tostring(EVENTS) }), config = config,
  })
  local whole = fleet:request(Fleet.chat_request("parcels", { model = "bench", stream = true }))
  local _, events = whole:body():gsub("data: {", "")
  assert.equal(EVENTS, events)
  return fleet, #whole:body()
end

local function waits(fleet)
  return peers.metric(fleet, "kvroute_gather_waits_total")
end

describe("events of a busy router", function()
  after_each(Fleet.finish)

  it("are taken together", function()
    local fleet, size = start()
    local rounds = 0
    repeat
      assert.is_true(ask(fleet, 64, size) > 0)
      rounds = rounds + 1
    until waits(fleet) > 0 or rounds == ROUNDS
    assert.is_true(waits(fleet) > 0, ROUNDS .. " seconds of load, and never busy")
    -- The load has ended, and with it the waiting.
    local before = waits(fleet)
    fleet:request(Fleet.chat_request("parcels", { model = "bench", stream = true }))
    assert.equal(0, peers.metric(fleet, "kvroute_gathering"))
    assert.is_true(waits(fleet) <= before + 1)
  end)

  it("are not when the streams are few", function()
    local fleet, size = start()
    for _ = 1, 2 do assert.is_true(ask(fleet, 8, size) > 0) end
    assert.equal(0, waits(fleet))
  end)

  it("are not when it is not wanted", function()
    local fleet, size = start({ streams = { gather_us = 0 } })
    for _ = 1, 2 do assert.is_true(ask(fleet, 64, size) > 0) end
    assert.equal(0, waits(fleet))
  end)
end)
