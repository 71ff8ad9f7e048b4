-- What the index said of each prompt and what the engine had: tokens believed and honoured, and how
-- many requests had less than was believed (over) or more (under). The two are never netted.
local BLOCK_BYTES = 64

return function()
  local out = { requests = 0, predicted = 0, honoured = 0, over = 0, over_tokens = 0, under = 0 }
  local function see(record)
    if record.measured == 0 or record.match_blocks == 0 then return end
    local predicted = record.match_blocks * BLOCK_BYTES * record.prompt_tokens
      / record.prompt_bytes
    out.requests = out.requests + 1
    out.predicted = out.predicted + predicted
    out.honoured = out.honoured + math.min(predicted, record.cached_tokens)
    if predicted > record.cached_tokens then
      out.over = out.over + 1
      out.over_tokens = out.over_tokens + predicted - record.cached_tokens
    elseif predicted < record.cached_tokens then
      out.under = out.under + 1
    end
  end
  return see, function() return out end
end
