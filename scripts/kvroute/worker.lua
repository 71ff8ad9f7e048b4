-- The loop of a process that runs cells: a job a line comes in, a line with its result or its error
-- goes out at descriptor 3, and before it now and then one that says that it is alive. It lives
-- until its input ends.
local unistd = require("posix.unistd")
local json = require("kvroute.json")

local M = {}

local ANSWERS = 3

local function send(answer)
  local text, at = json.encode(answer) .. "\n", 1
  while at <= #text do
    local n = unistd.write(ANSWERS, text:sub(at))
    if not n then os.exit(1) end -- nobody listens any more
    at = at + n
  end
end

local second -- in which it was last said
local function alive()
  local now = os.time()
  if now == second then return end
  second = now
  send({ alive = true })
end

local function explain(why)
  if type(why) == "table" then return why end
  return debug.traceback(tostring(why), 2)
end

---@param run fun(job: table, alive: fun()): table  calls `alive` now and then; raises
---  error({ reason = ... }) for what is no bug
function M.serve(run)
  for line in io.stdin:lines() do
    local ok, result = xpcall(function() return run(json.decode(line), alive) end, explain)
    if ok then
      send({ result = result })
    else
      send({ failure = type(result) == "table" and result.reason or result })
    end
  end
end

return M
