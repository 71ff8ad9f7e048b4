-- Least outstanding: the available replica with the least load, which is requests in flight over
-- weight and ramp. With equal weights and no ramp that is the fewest requests in flight.
--
-- Ties rotate. Blind to the cache, and to the size of a request.

---@type kvr.Policy
local P = { api = 1, name = "least_outstanding" }

function P.pick()
  return kvr.least("load"), "least_outstanding"
end

return P
