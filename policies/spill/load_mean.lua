-- Declines the preferred replica when its requests in flight exceed `factor` times the mean over
-- the available replicas (itself among them; taken as 1 when it is less). The request goes to the
-- fewest in flight among the others; ties rotate. Without another available replica it stays.

---@type kvr.Spill
local S = {
  api = 1,
  name = "load_mean",
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
  local limit = factor * math.max(view.mean_in_flight, 1)
  if factor == 0 or view[preferred].in_flight <= limit then return preferred end
  local target = kvr.least_except(preferred, "in_flight")
  if not target then return preferred end
  return target, "spill_mean"
end

return S
