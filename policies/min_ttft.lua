-- Mooncake's rule without its transfers: the replica that would give the first token soonest, by
-- (pending prompt tokens + those of this prompt that it does not hold) over weight and ramp.
--
-- The prefill rate that would make seconds of it is the fleet's and cancels out: weights say how
-- much faster than another a replica is. Ties rotate.
--
-- Left out: blocks fetched from another replica's cache, and refusing what would miss its SLO.

---@type kvr.Policy
local P = { api = 1, name = "min_ttft", needs = { "match" } }

local function time(row)
  return row.prefill_tokens / (row.weight * row.ramp)
end

function P.pick()
  return kvr.least_by(time), "min_ttft"
end

return P
