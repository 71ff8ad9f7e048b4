-- Sticky until saturated, of llm-d: the warm replicas, which hold `hit_ratio` of the prompt's
-- blocks, keep the request unless the best of them has to prefill so much before it, compared with
-- the best of all, that it would wait `max_gap_s` longer at `tokens_per_s`. Of those kept, all if
-- nobody is warm or the gap is too wide, the one with the fewest tokens to prefill before this
-- request's first takes it; ties rotate.
--
-- The defaults are those published for the authors' model and cards; their product, 286,720 tokens,
-- is what matters. For others it is peak prefill rate x tolerated wait.

---@type kvr.Policy
local P = {
  api = 1,
  name = "llmd_sticky",
  needs = { "match" },
  params = {
    hit_ratio = 0.8,      -- in (0, 1]
    tokens_per_s = 15928, -- > 0
    max_gap_s = 18,       -- >= 0
  },
}

local hit_ratio, gap_tokens

function P.init(params)
  hit_ratio, gap_tokens = params.hit_ratio, params.tokens_per_s * params.max_gap_s
  assert(hit_ratio > 0 and hit_ratio <= 1, "hit_ratio must be in (0, 1]")
  assert(params.tokens_per_s > 0, "tokens_per_s must be above 0")
  assert(params.max_gap_s >= 0, "max_gap_s must be 0 or more")
end

function P.pick(request, view)
  local blocks = math.max(1, math.ceil(hit_ratio * request.chain_len - 1e-6)) -- 12 of 15 are 0.8
  if view.max_match_blocks < blocks then return kvr.least("prefill_tokens"), "cold" end
  local warm = kvr.least_matching(blocks, "uncached_tokens")
  local all = kvr.least("uncached_tokens")
  if warm and view[warm].uncached_tokens - view[all].uncached_tokens <= gap_tokens then
    return kvr.least_matching(blocks, "prefill_tokens"), "sticky", true
  end
  return kvr.least("prefill_tokens"), "saturated"
end

return P
