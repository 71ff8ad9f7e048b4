-- Azure's LLM inference traces: arrivals as wall times with digits of 100 ns, and lengths. Nothing
-- is known about reuse, so every row has a prompt of its own.
local clock = require("kvroute.import.clock")

local M = { summary = "Azure LLM inference traces: arrivals and lengths", options = {} }

local HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"

---@param source kvr.Source
function M.rows(source)
  local first_s, first_ms, last = nil, 0, 0
  return function()
    local cells = source:cells(HEADER)
    if not cells then return nil end
    local seconds, ms = clock.wall(cells[1])
    if not seconds then source:fail("TIMESTAMP", "%q is no wall time", cells[1]) end
    if not first_s then first_s, first_ms = seconds, ms end
    local at = clock.rounded((seconds - first_s) * 1000 + ms - first_ms)
    if at < last then source:fail("TIMESTAMP", "%s is before the line above", cells[1]) end
    last = at
    return {
      at_ms = at,
      input_tokens = source:whole_cell(cells[2], "ContextTokens", 1),
      output_tokens = source:whole_cell(cells[3], "GeneratedTokens", 0),
    }
  end
end

return M
