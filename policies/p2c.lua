-- Power of two choices: of two different available replicas drawn at random, the one with less
-- load (in flight over weight and ramp). A tie goes to the first drawn, so ties are random.

---@type kvr.Policy
local P = { api = 1, name = "p2c" }

function P.pick(_, view)
  local n = view.available
  if n == 0 then return nil end
  local first = math.random(n)
  local second = first
  if n > 1 then second = first + math.random(n - 1) end -- different by construction, modulo n
  local a, b = kvr.nth_available(first), kvr.nth_available(second)
  return view[a].load <= view[b].load and a or b, "p2c"
end

return P
