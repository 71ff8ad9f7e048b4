local unistd = require("posix.unistd")
local contamination = require("kvroute.contamination")

local function watched(options, seconds)
  options.every_s = 0.02
  local watch = contamination.start(options)
  os.execute("sleep " .. (seconds or 0.2))
  return watch:finish()
end

describe("contamination", function()
  it("is looked for by a command, and found", function()
    local seen = watched({ command = "echo 4711, python, 900 MiB" })
    assert.equal("found", seen.state)
    assert.same({ "4711, python, 900 MiB" }, seen.found)
    assert.is_true(seen.looks > 1)
  end)

  it("tells nothing found from nothing looked for", function()
    assert.equal("clean", watched({ command = "true" }).state)
    local failed = watched({ command = "echo something; false" })
    assert.equal("not looked for", failed.state)
    assert.equal("the command has failed", failed.why)
    assert.is_true(failed.failed > 0)
    local slow = watched({ command = "sleep 61.25" }, 0.1)
    assert.equal("1\n", io.popen("pgrep -f 'sleep 61[.]25' >/dev/null; echo $?"):read("*a"))
    assert.equal("not looked for", slow.state)
    assert.equal("no look has ended in time", slow.why)
    local none = contamination.start({}):finish()
    assert.equal("not looked for", none.state)
    assert.truthy(none.why)
  end)

  it("knows the processes of our engines, and their children", function()
    local own = { unistd.getpid() }
    assert.equal("clean", watched({ command = "echo $$, our child", own = own }).state)
    assert.equal("found", watched({ command = "echo 1, init", own = own }).state)
  end)

  it("reads looks one by one: one that failed says nothing", function()
    local text = "look 0\n\nlook 1\nhalf an answer\nlook 0\na\nb\nlook 0\na\n"
    local seen = contamination.read(text, {})
    assert.same({ "a", "b" }, seen.found)
    assert.equal(3, seen.looks)
    assert.equal(1, seen.failed)
  end)
end)
