-- Session affinity with bounded loads: clockwise on the ring from the session's position, the first
-- available replica with room for one more. Nothing is remembered between turns.
--
-- `mode` says what room is. t = requests in flight on all available replicas, plus this one; n =
-- available replicas; w = weight x ramp of a replica, W = the sum of w. A replica has room when
--   seed     in_flight <  ceil((1 + eps) t / n)
--   haproxy  in_flight <  max(1, its share by weight of s), remainders spread along the rows
--   envoy    in_flight <= max(1, ceil(s w / W))
--   kubeai   in_flight <= (1 + eps) t / n, not rounded
-- with s = t x (100 + 100 eps) percent, rounded up to whole slots.

---@type kvr.Policy
local P = {
  api = 1,
  name = "bounded_session_affinity",
  params = {
    mode = "seed", -- seed, haproxy, envoy or kubeai
    eps = 0.25,    -- room above the mean, > 0
    min_cap = 1,   -- a replica with fewer requests in flight than this always has room
  },
}

local has_room, eps, percent, min_cap

local function slots(view)
  return math.floor(((view.total_in_flight + 1) * percent + 99) / 100)
end

local rooms = {}

function rooms.seed(view, i)
  return view[i].in_flight < math.ceil((1 + eps) * (view.total_in_flight + 1) / view.available)
end

function rooms.haproxy(view, i)
  local s, total, before = slots(view), view.total_weight, 0
  for j = 0, i - 1 do
    if view[j].available then before = before + view[j].weight * view[j].ramp end
  end
  local upto = before + view[i].weight * view[i].ramp
  local share = math.floor(upto * s / total) - math.floor(before * s / total)
  return view[i].in_flight < math.max(1, share)
end

function rooms.envoy(view, i)
  local share = math.ceil(slots(view) * (view[i].weight * view[i].ramp / view.total_weight))
  return view[i].in_flight <= math.max(1, share)
end

function rooms.kubeai(view, i)
  return view[i].in_flight <= (view.total_in_flight + 1) / view.available * (1 + eps)
end

function P.init(params)
  has_room = rooms[params.mode]
  assert(has_room, "mode must be seed, haproxy, envoy or kubeai")
  assert(params.eps > 0, "eps must be above 0")
  eps, min_cap = params.eps, params.min_cap
  percent = math.floor(100 * (1 + eps) + 0.5)
end

function P.pick(request, view)
  if request.session == 0 then return kvr.least("in_flight"), "no_session" end
  local order = kvr.ring_order(request.session)
  local home = kvr.first_available(order)
  for place = 0, order.count - 1 do
    local i = order[place]
    if view[i].available and (view[i].in_flight < min_cap or has_room(view, i)) then
      return i, i == home and "bounded_affinity" or "bound_deflected"
    end
  end
  return home, "bounded_affinity" -- all full: cannot be, the slots are more than the requests
end

return P
