local lfs = require("lfs")
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local time = require("posix.time")
local unistd = require("posix.unistd")
local wait = require("posix.sys.wait")
local progress = require("kvroute.progress")
local runner = require("kvroute.runner")
local stores = require("kvroute.store")

describe("runner", function()
  local folder, log

  before_each(function()
    folder = stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-runner-XXXXXX")
    log = folder .. "/log"
  end)

  after_each(function() os.execute("rm -rf '" .. folder .. "'") end)

  local function cell(name, spec)
    spec = spec or {}
    spec.name = name
    return { key = ("%-32s"):format(name):gsub(" ", "_"), spec = spec, texts = {} }
  end

  local function run(chains, options)
    local out = io.open("/dev/null", "w")
    local all = {
      store = stores.open(folder .. "/cells"),
      argv = { "luajit", "tests/spec/lab/fake_worker.lua", log }, jobs = 2,
      progress = function(total) return progress.new(total, out, false) end,
    }
    for name, value in pairs(options or {}) do all[name] = value end
    local result = runner.run(chains, all)
    out:close()
    return result
  end

  local function started()
    local out = {}
    local file = io.open(log)
    for line in file and file:lines() or function() end do out[#out + 1] = line end
    if file then file:close() end
    return out
  end

  local function files(path)
    local out = {}
    local list = io.popen("cd '" .. path .. "' 2>/dev/null && find . -type f | sort")
    for line in list:lines() do out[#out + 1] = line end
    list:close()
    return out
  end

  it("runs each cell once and keeps its result", function()
    local chains = {}
    for i = 1, 7 do chains[i] = { cell("c" .. i, { value = i }) } end
    local ran = run(chains)
    assert.equal(7, ran.ran)
    assert.equal(0, ran.missing)
    assert.same({}, ran.failures)
    for i = 1, 7 do
      local record = ran.records[chains[i][1].key]
      assert.equal(2 * i, record.result.doubled)
      assert.equal("c" .. i, record.cell.name)
    end
    assert.equal(7, #started())
    local again = run(chains)
    assert.equal(0, again.ran)
    assert.same(ran.records, again.records)
    assert.equal(7, #started())
  end)

  it("runs what is asked twice once", function()
    local same = cell("same", { ms = 30, value = 4 })
    local ran = run({ { same }, { same }, { same, cell("next") } })
    assert.equal(2, ran.ran)
    assert.equal(2, #started())
  end)

  it("runs again what is stored, if it is to be fresh", function()
    run({ { cell("a") } })
    assert.equal(1, run({ { cell("a") } }, { fresh = true }).ran)
    assert.equal(2, #started())
  end)

  it("hands texts over and keeps them by their hash", function()
    local one = cell("a")
    one.texts = { t = "return 1" }
    local ran = run({ { one } })
    assert.equal("return 1", ran.records[one.key].result.text)
    assert.equal("return 1", stores.read_file(folder .. "/cells/scripts/t.lua"))
  end)

  it("tells of cells that fail, each with its reason, and runs the others", function()
    local ran = run({
      { cell("a") }, { cell("b", { act = "refuse" }) }, { cell("c", { act = "raise" }) },
      { cell("d", { act = "die" }) }, { cell("e") }, { cell("f") },
    })
    assert.equal(3, ran.ran)
    assert.equal(0, ran.missing)
    local reasons = {}
    for _, failure in ipairs(ran.failures) do reasons[failure.cell.spec.name] = failure.reason end
    assert.equal("no such thing", reasons.b)
    assert.is_truthy(reasons.c:find("a bug", 1, true))
    assert.is_truthy(reasons.d:find("^its process exited with 7: .*out of luck$"))
    -- Failures are not kept: they are tried anew.
    assert.equal(2, run({ { cell("a") }, { cell("b") }, { cell("c") } }).ran)
  end)

  it("ends a cell that takes too long", function()
    local ran = run({ { cell("slow", { ms = 60000 }) }, { cell("quick") } }, { limit_s = 0.3 })
    assert.equal(1, ran.ran)
    assert.equal("it took longer than 0.3 s", ran.failures[1].reason)
    assert.equal("slow", ran.failures[1].cell.spec.name)
  end)

  it("gives up a cell of which nothing is heard, but none that says it is alive", function()
    local ran = run({ { cell("silent", { ms = 60000 }) },
      { cell("slow", { ms = 100, steps = 35, value = 3 }) } }, { silent_s = 2.5 })
    assert.equal(1, ran.ran)
    assert.equal(6, ran.records[cell("slow").key].result.doubled)
    assert.equal("nothing was heard of it for 2.5 s of its time; does a script never end?",
      ran.failures[1].reason)
    assert.equal("silent", ran.failures[1].cell.spec.name)
  end)

  it("tells one that is at work for ever from one that the machine has no time for", function()
    local ran = run({ { cell("spins", { act = "spin" }) },
      { cell("waits", { act = "stop", stopped_s = 2.5, value = 3 }) } }, { silent_s = 1 })
    assert.equal(1, ran.ran)
    assert.equal(6, ran.records[cell("waits").key].result.doubled)
    assert.equal("nothing was heard of it for 1 s of its time; does a script never end?",
      ran.failures[1].reason)
    assert.equal("spins", ran.failures[1].cell.spec.name)
  end)

  it("tells of a worker that cannot be started", function()
    local ran = run({ { cell("a") } }, { argv = { folder .. "/none" } })
    assert.equal("its process exited with 127: cannot run " .. folder .. "/none",
      ran.failures[1].reason)
  end)

  it("climbs a chain until it is told to stop", function()
    local function ladder(name)
      local chain = {}
      for i = 1, 5 do chain[i] = cell(name .. i, { value = i }) end
      return chain
    end
    local options = { stop = function(record) return record.result.doubled >= 6 end }
    local ran = run({ ladder("a"), ladder("b") }, options)
    assert.equal(6, ran.ran)
    assert.equal(0, ran.missing)
    assert.is_nil(ran.records[ladder("a")[4].key])
    assert.equal(0, run({ ladder("a"), ladder("b") }, options).ran)
  end)

  it("goes on a chain no further than a failure", function()
    local ran = run({ { cell("a1"), cell("a2", { act = "refuse" }), cell("a3") } })
    assert.same({ "a1", "a2" }, started())
    assert.equal(1, #ran.failures)
    assert.equal(0, ran.missing)
  end)

  it("is the same whole in shards", function()
    local chains = {}
    for i = 1, 11 do chains[i] = { cell("s" .. i, { value = i }) } end
    local whole = run(chains, { store = stores.open(folder .. "/whole") })
    local counts, parts = {}, stores.open(folder .. "/parts")
    for i = 1, 3 do
      local part = run(chains, { store = parts, shard = { index = i, of = 3 } })
      counts[i] = part.ran
      assert.equal(0, #part.failures)
    end
    assert.same({ 4, 4, 3 }, counts)
    assert.same(files(folder .. "/whole"), files(folder .. "/parts"))
    local collected = run(chains, { store = parts })
    assert.equal(0, collected.ran)
    assert.equal(0, collected.missing)
    assert.same(whole.records, collected.records)
  end)

  it("says how many cells a shard leaves to the others", function()
    local chains = {}
    for i = 1, 5 do chains[i] = { cell("m" .. i) } end
    local part = run(chains, { shard = { index = 2, of = 2 } })
    assert.equal(2, part.ran)
    assert.equal(3, part.missing)
  end)

  it("takes a broken file in the store for none", function()
    run({ { cell("a", { value = 3 }) } })
    local path = stores.open(folder .. "/cells"):path(cell("a").key)
    stores.write_file(path, '{"key":"' .. cell("a").key .. '","resu')
    local ran = run({ { cell("a", { value = 3 }) } })
    assert.equal(1, ran.ran)
    assert.equal(6, ran.records[cell("a").key].result.doubled)
  end)

  -- ---- being stopped ----

  local function start(cells, ms, jobs)
    local pid = assert(unistd.fork())
    if pid == 0 then
      local null = require("posix.fcntl").open("/dev/null", 1)
      unistd.dup2(null, 1)
      unistd.dup2(null, 2)
      stdlib.setenv("TMPDIR", folder)
      unistd.execp("luajit", { [0] = "luajit", "tests/spec/lab/fake_run.lua", folder .. "/cells",
        log, tostring(cells), tostring(ms), tostring(jobs) })
      unistd._exit(127)
    end
    return pid
  end

  local function stored()
    local count = 0
    for _, name in ipairs(files(folder .. "/cells")) do
      if name:find("%.json$") then count = count + 1 end
    end
    return count
  end

  local function until_true(what)
    for _ = 1, 500 do
      if what() then return end
      time.nanosleep({ tv_sec = 0, tv_nsec = 20e6 })
    end
    error("it took too long")
  end

  local function workers_of(name)
    local count = 0
    for entry in lfs.dir("/proc") do
      local command = entry:find("^%d+$") and stores.read_file("/proc/" .. entry .. "/cmdline")
      if command and command:find("fake_worker", 1, true) and command:find(name, 1, true) then
        count = count + 1
      end
    end
    return count
  end

  for _, how in ipairs({ "SIGKILL", "SIGINT", "SIGTERM" }) do
    it("goes on after " .. how .. " where it was", function()
      local cells = 24
      local pid = start(cells, 40, 2)
      until_true(function() return stored() >= 5 end)
      signal.kill(pid, signal[how])
      wait.wait(pid)
      until_true(function() return workers_of(log) == 0 end)
      local kept = stored()
      assert.is_true(kept >= 5 and kept < cells)
      for _, name in ipairs(files(folder .. "/cells")) do
        if how ~= "SIGKILL" then assert.is_nil(name:find("%.tmp$")) end
      end
      wait.wait(start(cells, 0, 2))
      assert.equal(cells, stored())
      -- At most what was under way was run twice.
      assert.is_true(#started() <= cells + 2, #started())
    end)
  end
end)
