-- CacheRoute without its placement: a planned key has as many copies as the plan gives it, or at
-- most `most`, on the replicas that a hash of the key names; the least loaded of them takes the
-- request. Other requests go to the least loaded of two drawn at random.

---@type kvr.Policy
local P = {
  api = 1,
  name = "hashed_copies",
  needs = { "plan" },
  params = { most = 1024 }, -- copies of a key; 1: one replica for each
}

local most

function P.init(params)
  most = params.most
  assert(most >= 1, "most must be 1 or more")
end

local function two_choices(view)
  local n = view.available
  local first = math.random(n)
  local second = n > 1 and first + math.random(n - 1) or first
  local a, b = kvr.nth_available(first), kvr.nth_available(second)
  return view[a].load <= view[b].load and a or b
end

function P.pick(request, view)
  if view.available == 0 then return nil end
  if view.planned == 0 then return two_choices(view), "unplanned" end
  local copies = 0
  for i = 0, view.count - 1 do copies = copies + view[i].assigned end
  local order = kvr.hrw_order(request.routing_key, 0, math.min(copies, most))
  local best
  for place = 0, order.count - 1 do
    local i = order[place]
    if view[i].available and (not best or view[i].load < view[best].load) then best = i end
  end
  return best or two_choices(view), "hashed", true
end

return P
