-- DualMap: two independent rings name two candidates for a key, and only these are asked.
--
-- The candidate that matches more of the prompt keeps it while its estimated time to the first
-- token is within `switch` x SLO; ties go to the fewest pending tokens, then in turn. Past that,
-- the sooner of the two takes it. The estimate is pending and unmatched tokens over the fastest
-- prefill rate measured in the fleet. The SLO is the request's own, else `slo_s`. When both rings
-- name one replica, the second candidate is the next on its ring.
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
    fallback_tokens_per_s = 6250, -- before the first measurement
  },
}

local slo_s, switch, fallback_tokens_per_s

function P.init(params)
  slo_s, switch, fallback_tokens_per_s = params.slo_s, params.switch, params.fallback_tokens_per_s
  assert(slo_s > 0 and switch > 0, "slo_s and switch must be above 0")
  assert(fallback_tokens_per_s > 0, "fallback_tokens_per_s must be above 0")
end

-- The first available row on a ring but `taken`. Two places do, unless one is away; 0: all.
local function candidate(view, key, ring, taken)
  for limit = 2, 0, -2 do
    local order = kvr.ring_order(key, ring, limit)
    for place = 0, order.count - 1 do
      if order[place] ~= taken and view[order[place]].available then return order[place] end
    end
  end
end

-- What is waiting there and what this prompt would add.
local function tokens(request, row)
  return row.uncached_tokens + math.max(request.prompt_tokens - row.match_tokens, 0)
end

function P.pick(request, view)
  local key = request.routing_key
  if key == 0 then return kvr.least("in_flight"), "unkeyed" end
  local a = candidate(view, key, 1)
  if not a then return nil end
  local b = candidate(view, key, 2, a)
  if not b then return a, "only" end

  if request.serial % 2 == 1 then a, b = b, a end -- ties in turn
  local more = view[b].match_blocks - view[a].match_blocks
  local less = view[a].uncached_tokens - view[b].uncached_tokens
  if more > 0 or (more == 0 and less > 0) then a, b = b, a end
  local rate = view.max_prefill_tokens_per_s
  if rate ~= rate then rate = fallback_tokens_per_s end
  local slo = request.slo_ttft_ms / 1000
  if slo ~= slo then slo = slo_s end
  local here = tokens(request, view[a])
  if here <= switch * slo * rate then return a, "affinity", true end
  if here <= tokens(request, view[b]) then return a, "busy", true end
  return b, "switched"
end

return P
