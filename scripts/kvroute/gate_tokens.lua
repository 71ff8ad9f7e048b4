-- A collector (collect.lua) for a gate: how long an answer takes for each of its tokens after the
-- first, as a mean over the answer; of all measured answers the 99th percentile.
return function()
  local times = {}
  local function see(record)
    if record.measured == 1 and record.outcome == 0 and record.output_tokens > 1 then
      times[#times + 1] = (record.e2el_ms - record.ttft_ms) / (record.output_tokens - 1)
    end
  end
  return see, function()
    table.sort(times)
    return { token_ms = times[math.ceil(0.99 * #times)] or 0 }
  end
end
