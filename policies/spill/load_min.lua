-- Declines the preferred replica when its requests in flight exceed `factor` times the fewest on
-- any available replica (itself among them; taken as 1 when it is 0). The request goes to the
-- fewest in flight among the others; ties rotate. Without another available replica it stays.

---@type kvr.Spill
local S = {
  api = 1,
  name = "load_min",
  params = {
    factor = 2, -- >= 1; 0: never decline
  },
}

local factor

function S.init(params)
  factor = params.factor
  assert(factor == 0 or factor >= 1, "factor must be 0 or at least 1")
end

function S.spill(_, view, preferred)
  local limit = factor * math.max(view.min_in_flight, 1)
  if factor == 0 or view[preferred].in_flight <= limit then return preferred end
  local target = kvr.least_except(preferred, "in_flight")
  if not target then return preferred end
  return target, "spill_load"
end

return S
