-- DualMap: two independent rings name two candidates for a key, and only these are asked.
--
-- The candidate that matches more of the prompt keeps it while its estimated time to the first
-- token is within `switch` x SLO; ties go to the fewest pending tokens, then in turn. Past that,
-- the sooner of the two takes it. The estimate is pending and unmatched tokens over the fastest
-- prefill rate measured in the fleet. The SLO is the request's own, else `slo_s`. When both rings
-- name one replica, the second candidate is the next on its ring.
--
-- The key is the routing key. With key=opening it is the leading 32 blocks of the prompt, or 64,
-- 96, ... 512: the first that at most `hot` / n of recent requests begin with, n replicas being
-- available. The routing key does where none is, as in a short prompt.
--
-- Left out, as it needs requests that wait in the router, one queue a replica: to move those that
-- wait from an overloaded candidate to the other, and to hold back all but one prefill a replica.

---@type kvr.Policy
local P = {
  api = 1,
  name = "dualmap",
  needs = { "match" },
  params = {
    slo_s = 5,    -- to the first token, unless the request states one
    switch = 0.5, -- share of it that the preferred candidate may take
    key = "routing_key", -- or "opening"
    hot = 2,      -- over n replicas: the share of requests that an opening may have
    fallback_tokens_per_s = 6250, -- before the first measurement
  },
}

local slo_s, switch, by_opening, hot, fallback_tokens_per_s

function P.init(params)
  slo_s, switch, hot = params.slo_s, params.switch, params.hot
  fallback_tokens_per_s, by_opening = params.fallback_tokens_per_s, params.key == "opening"
  assert(slo_s > 0 and switch > 0 and hot > 0, "slo_s, switch and hot must be above 0")
  assert(fallback_tokens_per_s > 0, "fallback_tokens_per_s must be above 0")
  assert(by_opening or params.key == "routing_key", "key must be routing_key or opening")
  if by_opening then P.needs = { "match", "openings" } end
end

local function opening(request, view)
  local blocks = kvr.rare_opening(hot / view.available, 32)
  return blocks and (request:block(blocks - 1))
end

-- The first available row on a ring but `taken`. Two places do, unless one is away.
local function candidate(key, ring, taken)
  local i = kvr.first_available(kvr.ring_order(key, ring, 2), taken)
  return i or (kvr.first_available(kvr.ring_order(key, ring), taken))
end

function P.pick(request, view)
  local key = by_opening and opening(request, view) or request.routing_key
  if key == 0 then return kvr.least("in_flight"), "unkeyed" end
  local a = candidate(key, 1)
  if not a then return nil end
  local b = candidate(key, 2, a)
  if not b then return a, "only" end

  if request.serial % 2 == 1 then a, b = b, a end -- ties in turn
  local more = view[b].match_blocks - view[a].match_blocks
  local less = view[a].uncached_tokens - view[b].uncached_tokens
  if more > 0 or (more == 0 and less > 0) then a, b = b, a end
  local rate = view.max_prefill_tokens_per_s
  if rate ~= rate then rate = fallback_tokens_per_s end
  local slo = request.slo_ttft_ms / 1000
  if slo ~= slo then slo = slo_s end
  if view[a].prefill_tokens <= switch * slo * rate then return a, "affinity", true end
  if view[a].prefill_tokens <= view[b].prefill_tokens then return a, "busy", true end
  return b, "switched"
end

return P
