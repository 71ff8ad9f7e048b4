-- Preble as CacheRoute reads it: exploit what a key has warmed, up to a cap on load.
--
-- Of the available replicas that this routing key came to within `recent_s`, the one with the
-- fewest requests in flight keeps it while, with this request,
--   in flight <= max(1, factor x (all in flight + 1) / available replicas).
-- Else, and for a new key, the fewest in flight of all take it, and hold the key from then on. Ties
-- rotate. An idle holder always has room: without the 1, a fleet with fewer requests than two
-- thirds of its replicas would never send a key to the same replica twice.

---@type kvr.Policy
local P = {
  api = 1,
  name = "preble_cap",
  needs = { "keys" },
  params = {
    factor = 1.5,   -- times the mean in flight, >= 1
    recent_s = 120, -- how long a replica counts as a holder, > 0
  },
}

local factor, recent_ms

function P.init(params)
  factor, recent_ms = params.factor, 1000 * params.recent_s
  assert(factor >= 1, "factor must be 1 or more")
  assert(recent_ms > 0, "recent_s must be above 0")
end

function P.pick(_, view)
  local holder = kvr.least_recent(recent_ms, "in_flight")
  if not holder then return kvr.least("in_flight"), "explore" end
  local room = math.max(1, factor * (view.total_in_flight + 1) / view.available)
  if view[holder].in_flight + 1 <= room then return holder, "exploit", true end
  return kvr.least("in_flight"), "over_cap"
end

return P
