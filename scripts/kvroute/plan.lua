-- A plan of key rates: which destinations each key goes to (core/model/plan.h makes it). Rates and
-- plans are files of lines, so that errors name the line and two plans can be compared by diff.
local bit = require("bit")
local ffi = require("kvroute.ffi")
local source = require("kvroute.import.source")
local table_of = require("kvroute.table")

local M = { HEADER = "key,rate,destinations", MODELS = "key,model,rate,destinations" }

local FIRST = "# kvroute plan 2, %d key%s" -- core/model/plan_file.h

local RATE_MAX = 1e15 -- KVR_PLAN_RATE_MAX

---@class kvr.KeyRate
---@field key string
---@field model string? "": requests that name none; nil: whatever the model, as are all then
---@field rate number any unit, the same for all
---@field tokens number? of its prefix, > 0; nil: not known

---@class kvr.Destination
---@field name string
---@field weight number
---@field models table<string, true>? that it serves; nil: any

---@class kvr.PlanOptions
---@field q_cap number? most load of one copy; nil: no limit
---@field slots number? copies for each destination, on average; nil: no limit
---@field skip boolean? pass over a key that does not fit, instead of ending there
---@field phi number? most load of one copy over the mean of destinations; nil: no limit
---@field tokens number? of prefixes for each destination, on average; nil: sizes do not matter
---@field residency number? of an idle prefix in a cache, in the time unit of rates
---@field keep boolean? go on from the last plan ...
---@field theta number? ... moving beyond 1 + theta times the mean ...
---@field move_budget number? ... so much of all rate, 0..1
---@field loyalty number? a key of the last plan counts so many times its rate at admission
---@field life number? how long it will be in force, in the time unit of rates
---@field counted number? how long the keys were, in that unit; nil: rates are known

---@class kvr.Plan
---@field keys integer that were given
---@field admitted_rate number
---@field tail_rate number
---@field imbalance number largest over mean load by weight
---@field split integer keys with more than one copy
---@field copies integer
---@field destinations {name: string, weight: number, load: number, keys: integer}[]
---@field entries {key: string, model: string?, rate: number, to: string[]}[] admitted, falling rate
---@field change table? against the last plan: struct kvr_plan_change

local VERDICTS = { [0] = "install", "same", "not worth it" } -- enum kvr_plan_verdict

-- Names stand between commas and blanks in the files.
local function check_name(file, text, field)
  if not text:find("^[^%s,]+$") then
    file:fail(field, "is %q; a word without blanks and commas is needed", text:sub(1, 40))
  end
  return text
end

---A key under a model, as one word: neither has commas.
---@param key string
---@param model string? nil: whatever the model
---@return string
function M.id(key, model) return model and key .. "," .. model or key end

---@param rates kvr.KeyRate[]
---@return boolean
function M.by_model(rates) return rates[1] ~= nil and rates[1].model ~= nil end

local function check_model(file, model)
  return model and (model == "" and "" or check_name(file, model, "model"))
end

local function above_zero(file, tokens)
  if tokens and tokens <= 0 then file:fail("tokens", "is %g; above 0", tokens) end
  return tokens
end

local function from_object(file)
  local object = file:object()
  if not object then return nil end
  local key = file:text_of(object.key, "key")
  local rate = file:number_of(object.rate, "rate", 0, RATE_MAX)
  return key, rate, object.tokens ~= nil and file:number_of(object.tokens, "tokens", 0) or nil,
    object.model ~= nil and file:text_of(object.model, "model") or nil
end

local HEADERS = { ["key,rate"] = true, ["key,rate,tokens"] = true, ["key,model,rate"] = true,
  ["key,model,rate,tokens"] = true }

local function from_cells(file, header)
  local cells = file:cells(header)
  if not cells then return nil end
  local model = header:find(",model,", 1, true) and table.remove(cells, 2) or nil
  local rate = file:number_cell(cells[2], "rate", 0, RATE_MAX)
  return cells[1], rate, cells[3] and file:number_cell(cells[3], "tokens", 0), model
end

---Key rates in the order of the file: CSV with the header key,rate or key,rate,tokens, with a model
---behind the key or without, or (*.jsonl, also gzipped) an object with these fields a line.
---@param path string
---@return kvr.KeyRate[]
function M.read_rates(path)
  local file, out, lines = source.open(path), {}, {}
  local next_rate, header = from_object, nil
  if not (path:find("%.jsonl$") or path:find("%.jsonl%.gz$")) then
    next_rate, header = from_cells, file:line()
    if not HEADERS[header] then
      file:fail(nil, "expected the header key,rate or key,rate,tokens, or key,model,rate and so on")
    end
  end
  while true do
    local key, rate, tokens, model = next_rate(file, header)
    if not key then return out end
    local id = M.id(check_name(file, key, "key"), check_model(file, model))
    if lines[id] then file:fail("key", "%s was on line %d", id, lines[id]) end
    if #out > 0 and (model ~= nil) ~= M.by_model(out) then
      file:fail("model", "is %s: all keys have one or none has", model and "there" or "missing")
    end
    lines[id] = file.number
    out[#out + 1] = { key = key, model = model, rate = rate, tokens = above_zero(file, tokens) }
  end
end

-- ---- what C makes it from ----

-- Rates and sizes by key, whose number is its place in the file: equal rates keep their order.
-- `kept` holds what the input only points to.
local function set_keys(input, rates, kept)
  kept.keys = ffi.new("struct kvr_plan_key[?]", #rates + 1)
  kept.sizes = ffi.new("struct kvr_plan_size[?]", #rates + 1)
  local sized = 0
  for i, each in ipairs(rates) do
    kept.keys[i - 1].key, kept.keys[i - 1].rate = i, each.rate
    kept.sizes[i - 1].tokens, kept.sizes[i - 1].saved = each.tokens or 1, each.tokens or 1
    sized = sized + (each.tokens and 1 or 0)
  end
  if sized > 0 and sized < #rates then
    error(("%d of %d keys have tokens: all or none do"):format(sized, #rates), 0)
  end
  input.keys, input.keys_len = kept.keys, #rates
  if sized > 0 then input.sizes = kept.sizes end
end

local function set_destinations(input, destinations, kept)
  kept.weights = ffi.new("double[?]", #destinations + 1)
  for i, each in ipairs(destinations) do kept.weights[i - 1] = each.weight end
  input.weights, input.destinations = kept.weights, #destinations
end

-- Where the keys of each model may go, a bit a destination; nothing where that is everywhere.
local function set_models(input, rates, destinations, kept)
  local restricted = false
  for _, each in ipairs(destinations) do restricted = restricted or each.models ~= nil end
  if not (restricted and M.by_model(rates)) then return end
  local words, sets, of_model = math.ceil(#destinations / 64), {}, {}
  kept.set_of = ffi.new("uint16_t[?]", #rates)
  for i, rate in ipairs(rates) do
    local model = rate.model
    if not of_model[model] then
      local bits = {}
      for j, each in ipairs(destinations) do
        bits[j] = (model == "" or not each.models or each.models[model]) and "1" or "0"
      end
      local text = table.concat(bits)
      if not sets[text] then sets[#sets + 1], sets[text] = text, #sets end
      of_model[model] = sets[text]
    end
    kept.set_of[i - 1] = of_model[model]
  end
  kept.sets = ffi.new("uint64_t[?]", #sets * words)
  for i, text in ipairs(sets) do
    for j = 0, #text - 1 do
      if text:byte(j + 1) == 49 then
        local word = (i - 1) * words + math.floor(j / 64)
        kept.sets[word] = bit.bor(kept.sets[word], bit.lshift(1ULL, j % 64))
      end
    end
  end
  input.sets, input.set_of, input.sets_len = kept.sets, kept.set_of, #sets
end

-- A plan of keys whatever their model has each of them under all models.
local function named(last, rates)
  if not M.by_model(rates) then return last end
  local out, taken = {}, {}
  for _, each in ipairs(rates) do
    local id = M.id(each.key, each.model)
    out[id] = last[id] or last[each.key]
    taken[last[id] and id or each.key] = true
  end
  for id, to in pairs(last) do
    if not taken[id] then out[id] = to end
  end
  return out
end

-- The last plan in C, with its keys and destinations by the numbers that they have now; what is not
-- there any more has other numbers, or none.
local function set_last(input, last, rates, destinations, kept)
  local number, copies, entries = {}, 0, 0
  last = named(last, rates)
  for i, each in ipairs(rates) do number[M.id(each.key, each.model)] = i end
  for _, to in pairs(last) do entries, copies = entries + 1, copies + #to end
  local keys = {}
  for key in pairs(last) do keys[#keys + 1] = key end
  table.sort(keys)
  local list = ffi.new("struct kvr_plan_entry[?]", entries + 1)
  local assigned, names, count = ffi.new("uint16_t[?]", copies + 1), {}, 0
  local at = 0
  for i, key in ipairs(keys) do
    list[i - 1].key, list[i - 1].first = number[key] or #rates + i, at
    list[i - 1].count = #last[key]
    for _, name in ipairs(last[key]) do
      if not names[name] then names[name], count = count, count + 1 end
      assigned[at], at = names[name], at + 1
    end
  end
  kept.now = ffi.new("uint16_t[?]", count + 1)
  for i = 0, count do kept.now[i] = 0xffff end -- KVR_PLAN_GONE
  for i, each in ipairs(destinations) do
    if names[each.name] then kept.now[names[each.name]] = i - 1 end
  end
  local C, failure = ffi.simulator(), ffi.new("struct kvr_error")
  local plan = C.kvr_plan_of(list, entries, assigned, count, failure)
  if plan == nil then error(ffi.string(failure.text), 0) end
  kept.last = ffi.gc(plan, C.kvr_plan_destroy)
  input.last, input.now = plan, kept.now
end

local function options_of(options, destinations)
  local out = ffi.new("struct kvr_plan_options", {
    q_cap = options.q_cap or 0, slots = math.min((options.slots or 0) * destinations, 2 ^ 32 - 1),
    skip = options.skip and 1 or 0, keep = options.keep and 1 or 0,
    tokens = (options.tokens or 0) * destinations,
  })
  for _, name in ipairs({ "phi", "residency", "theta", "move_budget", "loyalty" }) do
    out[name] = options[name] or 0
  end
  return out
end

local function as_data(plan, rates, destinations)
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
    out.entries[i + 1] = { key = given.key, model = given.model, rate = given.rate, to = to }
  end
  return out
end

---@param rates kvr.KeyRate[]
---@param destinations kvr.Destination[]
---@param options kvr.PlanOptions
---@param last table<string, string[]>? destinations by key, as M.read has them
---@return kvr.Plan
function M.make(rates, destinations, options, last)
  local C, failure, kept = ffi.simulator(), ffi.new("struct kvr_error"), {}
  local input = ffi.new("struct kvr_plan_input")
  set_keys(input, rates, kept)
  set_destinations(input, destinations, kept)
  set_models(input, rates, destinations, kept)
  input.counted = options.counted or 0
  if last then set_last(input, last, rates, destinations, kept) end
  local plan = C.kvr_plan_make(options_of(options, #destinations), input, failure)
  if plan == nil then error(ffi.string(failure.text), 0) end
  ffi.gc(plan, C.kvr_plan_destroy)
  local out = as_data(plan, rates, destinations)
  if last then
    local change = ffi.new("struct kvr_plan_change")
    C.kvr_plan_compare(plan, input, options.life or 0, change)
    out.change = ffi.table(change, "kvr_plan_change")
    out.change.verdict = VERDICTS[out.change.verdict]
  end
  kept.last = nil -- nothing of `kept` may be collected before
  return out
end

-- ---- as a file ----

---@param plan kvr.Plan
---@return string
function M.csv(plan)
  local rows, by_model = {}, M.by_model(plan.entries)
  for i, entry in ipairs(plan.entries) do
    local to = table.concat(entry.to, " ")
    rows[i] = by_model and { entry.key, entry.model, entry.rate, to }
      or { entry.key, entry.rate, to }
  end
  return FIRST:format(#rows, #rows == 1 and "" or "s") .. "\n"
    .. table_of.csv(by_model and { "key", "model", "rate", "destinations" }
      or { "key", "rate", "destinations" }, rows)
end

-- How many keys follow, nil in a plan of version 1, and the header of their columns.
local function read_head(file)
  local line, announced = file:line() or "", nil
  local version, count = line:match("^# kvroute plan (%d+), (%d+) keys?$")
  if version then
    if version ~= "2" then file:fail(nil, "version %s; 1 and 2 are read", version) end
    announced, line = tonumber(count), file:line() or ""
  end
  if line ~= M.HEADER and not (version and line == M.MODELS) then
    file:fail(nil, "expected the header %s", M.HEADER)
  end
  return announced, line
end

---The placements of a plan that was written: destinations by key, M.id of it.
---@param path string
---@return table<string, string[]> placements, boolean whole false: its version tells of no cut
function M.read(path)
  local file, out, count = source.open(path), {}, 0
  local announced, header = read_head(file)
  while true do
    local cells = file:cells(header)
    if not cells then break end
    local model = header == M.MODELS and table.remove(cells, 2) or nil
    local id, to = M.id(check_name(file, cells[1], "key"), check_model(file, model)), {}
    if out[id] then file:fail("key", "%s is there twice", id) end
    for name in cells[3]:gmatch("%S+") do to[#to + 1] = name end
    if #to == 0 then file:fail("destinations", "is empty") end
    out[id], count = to, count + 1
  end
  if count ~= (announced or count) then
    file:fail(nil, "the plan ends with %d of %d keys: it has been cut", count, announced)
  end
  if count == 0 then file:fail(nil, "a plan has keys") end
  return out, announced ~= nil
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
    local before, had = last[M.id(entry.key, entry.model)] or last[entry.key], {}
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

-- What moves, and the price of it where somebody asked.
local function moved_text(change)
  local text = ("%d of %d keys move, with %.4g of the rate; imbalance of the last plan now %.3f")
    :format(change.keys_moved, change.keys_both, change.rate_moved, change.last_imbalance)
  if change.staleness == 0 then return text end
  return text .. ("\nstaying costs %.4g tokens, warming up %.4g: %s"):format(change.staleness,
    change.warmup, change.verdict)
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
    notes[3] = moved_text(plan.change)
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
    destinations = plan.destinations, churn = churn, change = plan.change }
end

return M
