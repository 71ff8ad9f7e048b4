-- Prefix hash: the leading `window` blocks of the prompt name an order of replicas, clockwise on
-- the ring; the available replica with the least cost takes the request, where
--   cost = in_flight + weight x rank
-- and rank counts the available replicas before it in that order. Ties rotate. Nothing is
-- remembered: equal openings meet again without any index.
--
-- A prompt shorter than the window goes to the replica with the fewest requests in flight.

---@type kvr.Policy
local P = {
  api = 1,
  name = "prefix_hash",
  params = {
    window = 16, -- blocks, >= 1: 1,024 bytes of prompt at the default block size
    weight = 4,  -- requests in flight that one step down the order is worth, >= 0
  },
}

local window, weight

function P.init(params)
  window, weight = params.window, params.weight
  assert(window >= 1 and window % 1 == 0, "window must be a whole number of blocks, 1 or more")
  assert(weight >= 0, "weight must be 0 or more")
end

function P.pick(request, view)
  if request.chain_len < window then return kvr.least("in_flight"), "unhashed" end
  local order = kvr.ring_order((request:block(window - 1)))

  local best, ties, rank = math.huge, 0, 0
  for i = 0, order.count - 1 do
    local row = view[order[i]]
    if row.available then
      local cost = row.in_flight + weight * rank
      if cost < best then best, ties = cost, 1 elseif cost == best then ties = ties + 1 end
      rank = rank + 1
    end
  end
  if ties == 0 then return nil end

  local skip = request.serial % ties
  rank = 0
  for i = 0, order.count - 1 do
    local row = view[order[i]]
    if row.available then
      if row.in_flight + weight * rank == best then
        if skip == 0 then return order[i], rank == 0 and "prefix_hash" or "hash_deflected" end
        skip = skip - 1
      end
      rank = rank + 1
    end
  end
end

return P
