-- What a plan is made from, out of the rows of a router: rates of routing keys, and the load that
-- one destination carries. Nothing of the requests' content is needed.
local gate = require("kvroute.gate")
local import = require("kvroute.import")
local table_of = require("kvroute.table")

local M = {}

---Requests a second and mean prompt of each routing key over all rows, by falling rate.
---@param paths string[]
---@return kvr.KeyRate[]
function M.rates(paths)
  local keys, out, first_ms, last_ms = {}, {}, nil, nil
  for row in import.rows("router", paths) do
    first_ms, last_ms = first_ms or row.at_ms, row.at_ms
    local name = row.tenant
    if name and not keys[name] then
      keys[name] = { key = name, rate = 0, tokens = 0 }
      out[#out + 1] = keys[name]
    end
    if name then
      keys[name].rate = keys[name].rate + 1
      keys[name].tokens = keys[name].tokens + row.input_tokens
    end
  end
  if #out == 0 or last_ms == first_ms then error("these rows tell of no rates", 0) end
  for _, each in ipairs(out) do
    each.tokens = each.tokens / each.rate
    each.rate = each.rate / ((last_ms - first_ms) / 1000)
  end
  table.sort(out, function(a, b)
    if a.rate ~= b.rate then return a.rate > b.rate end
    return a.key < b.key
  end)
  return out
end

---As `kvroute plan --rates` reads them.
---@param rates kvr.KeyRate[]
---@return string
function M.csv(rates)
  local rows = {}
  for i, each in ipairs(rates) do rows[i] = { each.key, each.rate, each.tokens } end
  return table_of.csv({ "key", "rate", "tokens" }, rows)
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
