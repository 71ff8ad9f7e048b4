-- Declines the preferred replica when it has more tokens waiting for prefill than the best of the
-- others, by more than `seconds` of prefill. The request goes to the other with the fewest such
-- tokens; ties rotate. Tokens, not requests: a threshold on small counts of requests misfires when
-- the whole fleet holds a dozen.
--
-- The prefill rate is the fastest measured in the fleet: a replica's own figure falls as it gets
-- busy, and would make the rule ever more eager.

---@type kvr.Spill
local S = {
  api = 1,
  name = "tokens",
  params = {
    seconds = 1, -- of prefill, >= 0
    fallback_tokens_per_s = 4000, -- before the first measurement: 8B in 4 bit on an RTX 3090
  },
}

local seconds, fallback_tokens_per_s

function S.init(params)
  seconds, fallback_tokens_per_s = params.seconds, params.fallback_tokens_per_s
  assert(seconds >= 0, "seconds must be 0 or more")
  assert(fallback_tokens_per_s > 0, "fallback_tokens_per_s must be above 0")
end

function S.spill(_, view, preferred)
  local target = kvr.least_except(preferred, "uncached_tokens")
  if not target then return preferred end
  local rate = view.max_prefill_tokens_per_s
  if rate ~= rate then rate = fallback_tokens_per_s end
  local ahead = view[preferred].uncached_tokens - view[target].uncached_tokens
  if ahead <= seconds * rate then return preferred end
  return target, "spill_tokens"
end

return S
