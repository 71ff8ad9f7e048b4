-- Never spills: the preferred replica keeps every request.

---@type kvr.Spill
local S = { api = 1, name = "off" }

function S.spill(_, _, preferred)
  return preferred
end

return S
