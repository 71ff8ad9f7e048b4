-- What a plan is made from, out of the rows of a router: rates of routing keys, and the load that
-- one destination carries. Nothing of the requests' content is needed.
local gate = require("kvroute.gate")
local import = require("kvroute.import")
local plan = require("kvroute.plan")
local table_of = require("kvroute.table")

local M = {}

---Requests a second and mean prompt of each routing key over all rows, by falling rate: of each
---model its own, where there is more than one.
---@param paths string[]
---@return kvr.KeyRate[] rates, number seconds that they were counted
function M.rates(paths)
  local keys, out, models, first_ms, last_ms = {}, {}, {}, nil, nil
  for row in import.rows("router", paths, { models = true }) do
    first_ms, last_ms = first_ms or row.at_ms, row.at_ms
    local id = row.tenant and plan.id(row.tenant, row.model)
    if id and not keys[id] then
      keys[id] = { key = row.tenant, model = row.model, rate = 0, tokens = 0 }
      out[#out + 1] = keys[id]
      models[row.model] = true
    end
    if id then
      keys[id].rate = keys[id].rate + 1
      keys[id].tokens = keys[id].tokens + row.input_tokens
    end
  end
  if #out == 0 or last_ms == first_ms then error("these rows tell of no rates", 0) end
  local seconds, several = (last_ms - first_ms) / 1000, next(models, (next(models))) ~= nil
  for _, each in ipairs(out) do
    each.tokens = each.tokens / each.rate
    each.rate = each.rate / seconds
    if not several then each.model = nil end
  end
  table.sort(out, function(a, b)
    if a.rate ~= b.rate then return a.rate > b.rate end
    if a.key ~= b.key then return a.key < b.key end
    return (a.model or "") < (b.model or "")
  end)
  return out, seconds
end

---As `kvroute plan --rates` reads them.
---@param rates kvr.KeyRate[]
---@return string
function M.csv(rates)
  local rows, by_model = {}, plan.by_model(rates)
  for i, each in ipairs(rates) do
    rows[i] = by_model and { each.key, each.model, each.rate, each.tokens }
      or { each.key, each.rate, each.tokens }
  end
  return table_of.csv(by_model and { "key", "model", "rate", "tokens" }
    or { "key", "rate", "tokens" }, rows)
end

---q_cap: the highest load, in requests a second, that one emulated destination carries within the
---limits when it has as many of the hottest keys as its slots, which it then keeps warm.
---@param options kvr.GateOptions with `keys`, the slots of a destination
---@return number q_cap, number? above the lowest load that fails
function M.q_cap(options)
  options.replicas, options.against = 1, "least_outstanding"
  return gate.knee(options)
end

return M
