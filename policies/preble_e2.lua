-- Preble's E2: exploit when more of the prompt is cached somewhere than is not, else explore.
--
-- Exploit: of the replicas with the longest match, the least L. Explore: the least L + P. Ties go
-- to the first from a start that rotates. L is seconds of prefill of unmatched tokens, of all that
-- was dispatched there in the last three minutes, and of decode of what is in flight there. P is
-- seconds of prefill of this prompt's unmatched tokens.
--
-- Steal: a holder with `steal` x the L of the lightest gives the request to it, if the holder
-- stays the heavier even after the lightest has prefilled all of it. Both hold the prefix then.
--
-- Left out: M, the value of what would be evicted, which needs the engines' own order of eviction
-- (Preble's code has it off unless asked); the table of which subtree belongs to whom, so that a
-- request can be stolen but no subtree; copies of one hot prefix when its times to first token
-- double; and the preference of long prefills for replicas that mostly decode.

---@type kvr.Policy
local P = {
  api = 1,
  name = "preble_e2",
  needs = { "match", "work" },
  params = {
    steal = 1.5, -- 0: never
    fallback_tokens_per_s = 12500, -- of prefill, before the first measurement
    fallback_answer_ms = 6750, -- decode of an answer, likewise: 45 tokens of 150 ms
  },
}

local FIRST = 50 -- requests without stealing: their work says little yet
local steal, fallback_tokens_per_s, fallback_answer_ms
local rate -- of this decision: tokens/s of prefill

function P.init(params)
  steal, fallback_tokens_per_s = params.steal, params.fallback_tokens_per_s
  fallback_answer_ms = params.fallback_answer_ms
  assert(steal == 0 or steal >= 1, "steal must be 0, or 1 or more")
  assert(fallback_tokens_per_s > 0, "fallback_tokens_per_s must be above 0")
end

local function work(view, i) -- L
  local answer_ms = view[i].output_tokens * view[i].token_ms
  if answer_ms ~= answer_ms then answer_ms = fallback_answer_ms end
  return view[i].recent_uncached_tokens / rate + view[i].in_flight * answer_ms / 1000
end

-- The least L, with P if `own` is 1, of the rows that match so many blocks.
local function least(request, view, blocks, own)
  local best, seconds = nil, math.huge
  for step = 0, view.count - 1 do
    local i = (request.serial + step) % view.count
    if view[i].available and view[i].match_blocks >= blocks then
      local missing = view[i].prefill_tokens - view[i].uncached_tokens
      local cost = work(view, i) + own * missing / rate
      if cost < seconds then best, seconds = i, cost end
    end
  end
  return best
end

function P.pick(request, view)
  rate = view.max_prefill_tokens_per_s
  if rate ~= rate then rate = fallback_tokens_per_s end
  local longest = view.max_match_blocks
  local holder = longest > 0 and least(request, view, longest, 0)
  if not holder or 2 * view[holder].match_tokens <= request.prompt_tokens then
    return least(request, view, 0, 1), "explore"
  end
  if steal == 0 or request.serial < FIRST then return holder, "exploit", true end
  local lightest = least(request, view, 0, 0)
  local heavy, light = work(view, holder), work(view, lightest)
  local moved = request.prompt_tokens / rate
  if heavy >= steal * light and heavy - moved >= light + moved then return lightest, "steal" end
  return holder, "exploit", true
end

return P
