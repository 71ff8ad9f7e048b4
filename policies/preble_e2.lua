-- Preble's E2: exploit when more of the prompt is cached somewhere than is not, else explore.
--
-- Exploit: of the replicas with the longest match, the least L. Explore: the least L + P. Ties
-- rotate. In seconds, L is the prefill of unmatched tokens of what was dispatched there in the last
-- three minutes, and the decode of what is in flight there; P is the prefill of this prompt's
-- unmatched tokens.
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
    fallback_token_ms = 150,       -- of decode, likewise
    fallback_output_tokens = 45,   -- of an answer, likewise
  },
}

local FIRST = 50 -- requests without stealing: their work says little yet
local steal, fallback_tokens_per_s, fallback_token_ms, fallback_output_tokens
local rate, longest -- of this decision: tokens/s of prefill, blocks

function P.init(params)
  steal, fallback_tokens_per_s = params.steal, params.fallback_tokens_per_s
  fallback_token_ms = params.fallback_token_ms
  fallback_output_tokens = params.fallback_output_tokens
  assert(steal == 0 or steal >= 1, "steal must be 0, or 1 or more")
  assert(fallback_tokens_per_s > 0, "fallback_tokens_per_s must be above 0")
end

local function work(row) -- L
  local ms, tokens = row.token_ms, row.output_tokens
  if ms ~= ms then ms = fallback_token_ms end
  if tokens ~= tokens then tokens = fallback_output_tokens end
  return row.recent_uncached_tokens / rate + row.in_flight * tokens * ms / 1000
end

local function work_of_holder(row)
  if row.match_blocks == longest then return work(row) end
end

local function work_and_prefill(row) -- prefill_tokens has what is pending, too
  return work(row) + (row.prefill_tokens - row.uncached_tokens) / rate
end

function P.pick(request, view)
  rate, longest = view.max_prefill_tokens_per_s, view.max_match_blocks
  if rate ~= rate then rate = fallback_tokens_per_s end
  local holder = longest > 0 and kvr.least_by(work_of_holder)
  if not holder or 2 * view[holder].match_tokens <= request.prompt_tokens then
    return kvr.least_by(work_and_prefill), "explore"
  end
  if steal == 0 or request.serial < FIRST then return holder, "exploit", true end
  local lightest = kvr.least_by(work)
  local heavy, light = work(view[holder]), work(view[lightest])
  local moved = request.prompt_tokens / rate
  if heavy >= steal * light and heavy - moved >= light + moved then return lightest, "steal" end
  return holder, "exploit", true
end

return P
