-- A worker whose cells need no simulator: what a cell does stands in its spec. Each start of a cell
-- leaves a line in the file named by the first argument.
package.path = "scripts/?.lua;scripts/?/init.lua;" .. package.path
local signal = require("posix.signal")
local time = require("posix.time")
local unistd = require("posix.unistd")
local worker = require("kvroute.worker")

local log = arg[1]

local function sleep(ms)
  time.nanosleep({ tv_sec = math.floor(ms / 1000), tv_nsec = ms % 1000 * 1e6 })
end

worker.serve(function(job, alive)
  local spec = job.spec
  local file = assert(io.open(log, "a"))
  file:write(spec.name, "\n")
  file:close()
  for _ = 1, spec.steps or 1 do
    alive()
    sleep(spec.ms or 0)
  end
  if spec.act == "spin" then while true do end end
  if spec.act == "stop" then -- the machine has no time for it, for so long
    os.execute(("(sleep %g; kill -CONT %d) >&- 3>&- &"):format(spec.stopped_s, unistd.getpid()))
    signal.kill(unistd.getpid(), signal.SIGSTOP)
  end
  if spec.act == "refuse" then error({ reason = "no such thing" }) end
  if spec.act == "raise" then error("a bug") end
  if spec.act == "die" then
    io.stderr:write("out of luck\n")
    unistd._exit(7)
  end
  print("what is printed does no harm")
  return { name = spec.name, doubled = 2 * (spec.value or 0), text = job.texts.t }
end)
