-- Declines the preferred replica when its engine's prefix hit rate is under a mark: a cache that
-- forgets is not worth waiting for. The request goes to the fewest in flight among the others that
-- are not under the mark; ties rotate. A rate that was not read is never under it.
--
-- Shipped off: the study it comes from found it harmful at all of 35 points. There the rule of
-- load_min was asked when this one did not decline; `factor` adds that.

---@type kvr.Spill
local S = {
  api = 1,
  name = "hit_rate",
  params = {
    low_water = 0, -- 0..1; 0: off
    factor = 0,    -- of load_min, applied second; 0: off
  },
}

local low_water, factor

local function is_under(row)
  return row.engine_hit_rate < low_water -- false for NaN
end

local function in_flight_unless_under(row)
  if not is_under(row) then return row.in_flight end
end

function S.init(params)
  low_water, factor = params.low_water, params.factor
  assert(low_water >= 0 and low_water < 1, "low_water must be in [0, 1)")
  assert(factor == 0 or factor >= 1, "factor must be 0 or at least 1")
end

function S.spill(_, view, preferred)
  local in_flight = view[preferred].in_flight
  if is_under(view[preferred]) then
    local target = kvr.least_by(in_flight_unless_under)
    if target then return target, "spill_hit_rate" end
  elseif factor > 0 and in_flight > factor * math.max(view.min_in_flight, 1) then
    local target = kvr.least_except(preferred, "in_flight")
    if target then return target, "spill_load" end
  end
  return preferred
end

return S
