-- Pairs of lengths, as vidur ships them: no times, no reuse. When the requests come is the
-- workload's affair.
local M = { summary = "vidur's length pairs: no times", options = {} }

local HEADER = "num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio"

---@param source kvr.Source
function M.rows(source)
  return function()
    local cells = source:cells(HEADER)
    if not cells then return nil end
    local input = source:whole_cell(cells[1], "num_prefill_tokens", 1)
    local output = source:whole_cell(cells[2], "num_decode_tokens", 0)
    if input + output ~= source:whole_cell(cells[3], "num_total_tokens", 1) then
      source:fail("num_total_tokens", "is %s; the two before make %d", cells[3], input + output)
    end
    return { input_tokens = input, output_tokens = output }
  end
end

return M
