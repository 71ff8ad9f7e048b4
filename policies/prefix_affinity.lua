-- Prefix affinity: the available replica believed to hold the longest leading run of this prompt's
-- blocks. Among several that hold that run, the fewest requests in flight; ties rotate.
--
-- When nobody holds the first block the request is cold and goes to the fewest in flight. A pick
-- made for its cache may be declined by the spill rule in force (spill/).

---@type kvr.Policy
local P = {
  api = 1,
  name = "prefix_affinity",
  needs = { "match" },
  params = {
    spill = "load_min", -- the spill rule unless another is set
    by = "in_flight",   -- or "load": in flight over weight and ramp
  },
}

local by

function P.init(params)
  by = params.by
  assert(by == "in_flight" or by == "load", "by must be in_flight or load")
end

function P.pick(_, view)
  local longest = view.max_match_blocks
  if longest == 0 then return kvr.least(by), "cold" end
  return kvr.least_matching(longest, by), "prefix", true
end

return P
