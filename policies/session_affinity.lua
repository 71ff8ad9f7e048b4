-- Session affinity: every turn of a conversation to the replica that a hash of its session names.
-- No load term and no bound: a busy replica keeps its sessions.
--
-- When that replica is not available, the next one in the order takes the turn until it is back.
-- A request without a session goes to the replica with the fewest requests in flight.

---@type kvr.Policy
local P = {
  api = 1,
  name = "session_affinity",
  params = {
    mode = "ring", -- "ring": clockwise on the ring of virtual nodes; "hrw": by rendezvous score
  },
}

local order_of -- kvr.ring_order or kvr.hrw_order

function P.init(params)
  order_of = params.mode == "ring" and kvr.ring_order or params.mode == "hrw" and kvr.hrw_order
  if not order_of then error("mode must be ring or hrw, not " .. params.mode) end
end

function P.pick(request)
  if request.session == 0 then return kvr.least("in_flight"), "no_session" end
  local home = kvr.first_available(order_of(request.session, 0, 1))
  return home or (kvr.first_available(order_of(request.session))), "session_affinity"
end

return P
