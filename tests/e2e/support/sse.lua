-- The events of an event stream's body, as far as they are complete.
local cjson = require("cjson")

local M = {}

---@param body string
---@return table list of { event, data, json } ; json is nil for [DONE]
function M.events(body)
  local events = {}
  for block in body:gmatch("(.-)\n\n") do
    local event = {
      event = block:match("^event: ([^\n]+)\n"),
      data = block:match("data: ([^\n]*)"),
    }
    if event.data and event.data ~= "[DONE]" then event.json = cjson.decode(event.data) end
    events[#events + 1] = event
  end
  return events
end

return M
