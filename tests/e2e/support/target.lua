-- What the specs of kvroute load share: endpoints that answer as told, and the end of all of it.
local connection = require("e2e.support.connection")
local Driver = require("e2e.support.driver")
local Emulator = require("e2e.support.emulator")
local process = require("e2e.support.process")
local Replica = require("e2e.support.replica")

local M = {}

---For after_each.
function M.finish()
  Driver.finish()
  Emulator.finish()
  Replica.stop_all()
  connection.close_all()
  process.kill_all()
end

M.USAGE = 'data: {"choices":[],"usage":{"prompt_tokens":100,"completion_tokens":%d,'
  .. '"prompt_tokens_details":{"cached_tokens":64}}}\n\n'

-- A busy machine may make a driver late, which is flagged: of the machine, not of what is tested.
function M.assert_done(status)
  assert(status == 0 or status == 3, "exit status " .. status)
end

function M.flags(report)
  local found = {}
  for _, flag in ipairs(report.flags) do
    if flag ~= "behind" and flag ~= "busy" then found[#found + 1] = flag end
  end
  return found
end

-- A good stream of so many words, at once.
function M.stream(exchange, words)
  exchange:stream()
  for _ = 1, words or 3 do exchange:event("word ") end
  exchange:chunk(M.USAGE:format(words or 3))
  exchange:finish()
end

return M
