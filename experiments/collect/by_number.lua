-- What was found in caches over a run, by the number of the request in order of arrival, a thousand
-- in a bucket: prompt tokens and how many of these were cached. Equal numbers are equal requests
-- under all policies.
local BUCKET = 1000

return function()
  local out = { prompt = {}, cached = {} }
  local function see(record)
    local i = math.floor(tonumber(record.user) / BUCKET) + 1
    for empty = #out.prompt + 1, i do out.prompt[empty], out.cached[empty] = 0, 0 end
    out.prompt[i] = out.prompt[i] + record.prompt_tokens
    out.cached[i] = out.cached[i] + record.cached_tokens
  end
  return see, function() return out end
end
