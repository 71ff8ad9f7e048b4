-- A plan of key rates: which destinations each key goes to (core/model/plan.h makes it). Rates and
-- plans are files of lines, so that errors name the line and two plans can be compared by diff.
local ffi = require("kvroute.ffi")
local source = require("kvroute.import.source")
local table_of = require("kvroute.table")

local M = { HEADER = "key,rate,destinations" }

---@class kvr.KeyRate
---@field key string
---@field rate number any unit, the same for all

---@class kvr.Destination
---@field name string
---@field weight number

---@class kvr.PlanOptions
---@field q_cap number? most load of one copy; nil: no limit
---@field slots number? copies for each destination, on average; nil: no limit
---@field skip boolean? pass over a key that does not fit, instead of ending there

---@class kvr.Plan
---@field keys integer that were given
---@field admitted_rate number
---@field tail_rate number
---@field imbalance number largest over mean load by weight
---@field split integer keys with more than one copy
---@field copies integer
---@field destinations {name: string, weight: number, load: number, keys: integer}[]
---@field entries {key: string, rate: number, to: string[]}[] admitted keys by falling rate

-- Names stand between commas and blanks in the files.
local function check_name(file, text, field)
  if not text:find("^[^%s,]+$") then
    file:fail(field, "is %q; a word without blanks and commas is needed", text:sub(1, 40))
  end
  return text
end

-- "key,rate" with that header, or JSON objects; by the name of the file.
local function next_rate(file, is_json)
  if is_json then
    local object = file:object()
    if not object then return nil end
    return file:text_of(object.key, "key"), file:number_of(object.rate, "rate", 0)
  end
  local cells = file:cells("key,rate")
  if not cells then return nil end
  return cells[1], file:number_cell(cells[2], "rate", 0)
end

---Key rates in the order of the file: CSV with the header key,rate, or (*.jsonl, also gzipped) an
---object with key and rate a line.
---@param path string
---@return kvr.KeyRate[]
function M.read_rates(path)
  local file, out, lines = source.open(path), {}, {}
  local is_json = path:find("%.jsonl$") or path:find("%.jsonl%.gz$")
  while true do
    local key, rate = next_rate(file, is_json)
    if not key then return out end
    check_name(file, key, "key")
    if lines[key] then file:fail("key", "%s was on line %d", key, lines[key]) end
    lines[key] = file.number
    out[#out + 1] = { key = key, rate = rate }
  end
end

---Rates of one key after another; equal rates keep their order.
---@param rates kvr.KeyRate[]
---@param destinations kvr.Destination[]
---@param options kvr.PlanOptions
---@return kvr.Plan
function M.make(rates, destinations, options)
  local C, failure = ffi.simulator(), ffi.new("struct kvr_error")
  local keys = ffi.new("struct kvr_plan_key[?]", #rates + 1)
  for i, each in ipairs(rates) do
    keys[i - 1].key, keys[i - 1].rate = i, each.rate
  end
  local weights = ffi.new("double[?]", #destinations + 1)
  for i, each in ipairs(destinations) do weights[i - 1] = each.weight end
  local asked = ffi.new("struct kvr_plan_options", {
    q_cap = options.q_cap or 0, slots = math.min((options.slots or 0) * #destinations, 2 ^ 32 - 1),
    skip = options.skip and 1 or 0,
  })
  local plan = C.kvr_plan_create(asked, keys, #rates, weights, #destinations, failure)
  if plan == nil then error(ffi.string(failure.text), 0) end
  ffi.gc(plan, C.kvr_plan_destroy)
  local out = { keys = plan.keys, copies = plan.copies, split = plan.split,
    admitted_rate = plan.admitted_rate, tail_rate = plan.tail_rate, imbalance = plan.imbalance,
    destinations = {}, entries = {} }
  for i, each in ipairs(destinations) do
    out.destinations[i] = { name = each.name, weight = each.weight, load = plan.loads[i - 1],
      keys = 0 }
  end
  for i = 0, plan.admitted - 1 do
    local entry, to = plan.entries[i], {}
    for copy = 0, entry.count - 1 do
      local destination = out.destinations[plan.assigned[entry.first + copy] + 1]
      destination.keys = destination.keys + 1
      to[copy + 1] = destination.name
    end
    local given = rates[tonumber(entry.key)]
    out.entries[i + 1] = { key = given.key, rate = given.rate, to = to }
  end
  return out
end

-- ---- as a file ----

---@param plan kvr.Plan
---@return string
function M.csv(plan)
  local rows = {}
  for i, entry in ipairs(plan.entries) do
    rows[i] = { entry.key, entry.rate, table.concat(entry.to, " ") }
  end
  return table_of.csv({ "key", "rate", "destinations" }, rows)
end

---The placements of a plan that was written: destinations by key.
---@param path string
---@return table<string, string[]>
function M.read(path)
  local file, out = source.open(path), {}
  while true do
    local cells = file:cells(M.HEADER)
    if not cells then return out end
    local key, to = check_name(file, cells[1], "key"), {}
    if out[key] then file:fail("key", "%s is there twice", key) end
    for name in cells[3]:gmatch("%S+") do to[#to + 1] = name end
    if #to == 0 then file:fail("destinations", "is empty") end
    out[key] = to
  end
end

-- ---- against another ----

---@class kvr.PlanChurn
---@field placements number 1 - Jaccard of the sets of (key, destination), 0..1
---@field counts number of the keys that both have, the share with another number of copies
---@field kept integer placements in both
---@field added integer
---@field removed integer

---@param last table<string, string[]>
---@param plan kvr.Plan
---@return kvr.PlanChurn
function M.churn(last, plan)
  local kept, new, old, both, recounted = 0, 0, 0, 0, 0
  for _, to in pairs(last) do old = old + #to end
  for _, entry in ipairs(plan.entries) do
    local before, had = last[entry.key], {}
    new = new + #entry.to
    for _, name in ipairs(before or {}) do had[name] = true end
    for _, name in ipairs(entry.to) do kept = kept + (had[name] and 1 or 0) end
    both = both + (before and 1 or 0)
    recounted = recounted + (before and #before ~= #entry.to and 1 or 0)
  end
  local union = old + new - kept
  return { placements = union > 0 and 1 - kept / union or 0,
    counts = both > 0 and recounted / both or 0, kept = kept, added = new - kept,
    removed = old - kept }
end

-- ---- to be read ----

local function percent(part, whole)
  return whole > 0 and ("%.1f %%"):format(100 * part / whole) or "0.0 %"
end

---@param plan kvr.Plan
---@param churn kvr.PlanChurn?
---@return string
function M.text(plan, churn)
  local rate, weight, rows = plan.admitted_rate + plan.tail_rate, 0, {}
  for _, each in ipairs(plan.destinations) do weight = weight + each.weight end
  for i, each in ipairs(plan.destinations) do
    local mean = rate * each.weight / weight
    rows[i] = { each.name, ("%g"):format(each.weight), each.keys, ("%.4g"):format(each.load),
      rate > 0 and ("%.3f"):format(each.load / mean) or false }
  end
  local notes = { ("imbalance %.3f: the largest load over the mean, by weight"):format(
    plan.imbalance) }
  if churn then
    notes[2] = ("churn %.1f %% of placements: %d kept, %d added, %d removed; %.1f %% of keys in "
      .. "both have another number of copies"):format(100 * churn.placements, churn.kept,
      churn.added, churn.removed, 100 * churn.counts)
  end
  return table_of.text({
    title = ("%d of %d keys admitted, with %s of the rate; %d split, %d copies in all"):format(
      #plan.entries, plan.keys, percent(plan.admitted_rate, rate), plan.split, plan.copies),
    head = { "destination", "weight", "keys", "load", "of mean" }, rows = rows, notes = notes,
  })
end

---The same as data; the placements are those of the file.
---@param plan kvr.Plan
---@param churn kvr.PlanChurn?
---@return table
function M.data(plan, churn)
  return { keys = plan.keys, admitted = #plan.entries, split = plan.split, copies = plan.copies,
    admitted_rate = plan.admitted_rate, tail_rate = plan.tail_rate, imbalance = plan.imbalance,
    destinations = plan.destinations, churn = churn }
end

return M
