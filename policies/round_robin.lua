-- Round robin: the available replicas in id order, one after the other.
--
-- Blind to load, cache and weight. The turn is request.serial, which C counts per model, so that a
-- reload goes on where the last text stopped.

---@type kvr.Policy
local P = { api = 1, name = "round_robin" }

function P.pick(request)
  return kvr.nth_available(request.serial), "round_robin"
end

return P
