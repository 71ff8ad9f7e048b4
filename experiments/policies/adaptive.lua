-- Prefix affinity while the fleet can serve what it is asked; the ring of session affinity while it
-- cannot. Above `deep` requests in flight a replica no answer comes within the limits on a fleet
-- whose load is level; an uneven one keeps some replicas below it.

---@type kvr.Policy
local P = {
  api = 1,
  name = "adaptive",
  needs = { "match" },
  params = {
    spill = "load_mean",
    deep = 16, -- mean requests in flight of a replica
  },
}

local deep

function P.init(params)
  deep = params.deep
  assert(deep > 0, "deep must be above 0")
end

function P.pick(request, view)
  if view.mean_in_flight > deep and request.session ~= 0 then
    return kvr.first_available(kvr.ring_order(request.session)), "deep_ring"
  end
  local longest = view.max_match_blocks
  if longest == 0 then return kvr.least("in_flight"), "cold" end
  return kvr.least_matching(longest, "in_flight"), "prefix", true
end

return P
