-- SMetric: sessions are balanced, turns stay. The first turn of a conversation goes to the replica
-- with the least load. A later one goes to the replica that matches most of its prompt, among
-- equals the one with least to prefill, unless the estimated time to its first token there exceeds
-- `slack` x SLO: then to the least load too. Ties rotate.
--
-- SLO = base_ms + per_1k_ms for each 1000 tokens of the prompt. The estimate is all tokens to be
-- prefilled before that first token over the fastest prefill rate measured in the fleet; the
-- paper's fitted term for attention is left out, a router has no such fit. Until a rate is measured
-- it is the one at which the SLO grows. A turn that is unknown is a later one if anybody matches.

---@type kvr.Policy
local P = {
  api = 1,
  name = "smetric",
  needs = { "match" },
  params = {
    base_ms = 1000,   -- of the SLO, >= 0
    per_1k_ms = 62.5, -- of the SLO, > 0
    slack = 1,        -- > 0
  },
}

local base_ms, per_1k_ms, slack

function P.init(params)
  base_ms, per_1k_ms, slack = params.base_ms, params.per_1k_ms, params.slack
  assert(base_ms >= 0, "base_ms must be 0 or more")
  assert(per_1k_ms > 0 and slack > 0, "per_1k_ms and slack must be above 0")
end

function P.pick(request, view)
  if request.turn == 1 then return kvr.least("load"), "first_turn" end
  local longest = view.max_match_blocks
  if longest == 0 then return kvr.least("load"), "cold" end
  local home = kvr.least_matching(longest, "prefill_tokens")
  local rate = view.max_prefill_tokens_per_s
  local ms_per_token = rate == rate and 1000 / rate or per_1k_ms / 1000
  local slo_ms = base_ms + per_1k_ms / 1000 * request.prompt_tokens
  if home and view[home].prefill_tokens * ms_per_token <= slack * slo_ms then
    return home, "session", true
  end
  return kvr.least("load"), "over_slo"
end

return P
