-- CacheRoute: a key that the plan has goes to the least loaded of its destinations, however busy
-- these are; ties rotate. Load is in flight over weight and ramp.
--
-- Any other request goes by two choices: of two different available replicas drawn at random, the
-- one with less load, the first drawn at a tie. So does a planned key while none of its
-- destinations is available. The plan is C's: `kvroute plan` shows how one is made.
--
-- `escape` is no part of the paper: a planned key goes to the least loaded replica of all while
-- those of the plan have more than so much load above it; 0: never.

---@type kvr.Policy
local P = { api = 1, name = "cacheroute", needs = { "plan" }, params = { escape = 0 } }

function P.pick(_, view)
  local planned = view.planned == 1 and kvr.least_assigned("load")
  if planned then
    local escape = P.params.escape
    if escape > 0 and view[planned].load - view.min_load > escape then
      return kvr.least("load"), "escaped"
    end
    return planned, "planned", true
  end
  local n = view.available
  if n == 0 then return nil end
  local first = math.random(n)
  local second = first
  if n > 1 then second = first + math.random(n - 1) end -- different by construction, modulo n
  local a, b = kvr.nth_available(first), kvr.nth_available(second)
  local chosen = view[a].load <= view[b].load and a or b
  return chosen, view.planned == 1 and "planned_away" or "unplanned"
end

return P
