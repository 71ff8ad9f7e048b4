-- Cache aware, of the SGLang router: while the fleet is balanced, the replica that matches most of
-- the prompt, if that is more than `cache_threshold` of it; else, and while it is not, the fewest
-- requests in flight. Unbalanced is: greatest - least in flight > `abs`, and greatest > `rel` x
-- least. Among equal matches the fewest in flight; ties rotate.
--
-- In mode `window` an unbalanced fleet keeps its caches in mind: of the replicas with at most
-- least + `abs` in flight the one that matches most, however little; without any match, the fewest.

---@type kvr.Policy
local P = {
  api = 1,
  name = "cache_aware",
  needs = { "match" },
  params = {
    mode = "fleet",        -- or "window"
    cache_threshold = 0.3, -- of the prompt, 0..1
    abs = 64,              -- requests, >= 0
    rel = 1.5,             -- >= 1
  },
}

local window, cache_threshold, abs, rel

function P.init(params)
  assert(params.mode == "fleet" or params.mode == "window", "mode must be fleet or window")
  window, cache_threshold, abs, rel =
    params.mode == "window", params.cache_threshold, params.abs, params.rel
  assert(cache_threshold >= 0 and cache_threshold <= 1, "cache_threshold must be in 0..1")
  assert(abs >= 0 and rel >= 1, "abs must be 0 or more, rel 1 or more")
end

local function longest_within(view, limit)
  local longest = 0
  for i = 0, view.count - 1 do
    if view[i].available and view[i].in_flight <= limit then
      longest = math.max(longest, view[i].match_blocks)
    end
  end
  return longest
end

function P.pick(request, view)
  local least, greatest = view.min_in_flight, view.max_in_flight
  if greatest - least > abs and greatest > rel * least then
    local longest = window and longest_within(view, least + abs) or 0
    if longest == 0 then return kvr.least("in_flight"), "unbalanced" end
    return kvr.least_matching(longest, "in_flight"), "near_least", true
  end
  local longest = view.max_match_blocks
  if longest * request.block_bytes > cache_threshold * request.prompt_bytes then
    return kvr.least_matching(longest, "in_flight"), "prefix", true
  end
  return kvr.least("in_flight"), "cold"
end

return P
