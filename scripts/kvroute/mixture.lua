-- Which recorded cells may stand in one table: none may differ in anything but the policy, the seed
-- and the axes. Each refusal names the rule, the field, and two cells with their values.
local evidence = require("kvroute.evidence")
local json = require("kvroute.json")
local recorded = require("kvroute.recorded")
local schema = require("kvroute.schema")

local M = {}

---@class kvr.Refusal
---@field rule string "more than one SLO"
---@field field string? "slo.ttft_ms"
---@field cells string[] names, with what each has there
---@field text string all of it

local function refusal(rule, field, cells)
  local text = rule
  if field then text = ("%s: %s is"):format(rule, field) end
  return {
    rule = rule, field = field, cells = cells, text = text .. "\n  " .. table.concat(cells, "\n  "),
  }
end

local function shown(value, each)
  return ("%s in %s"):format(value == nil and "not set" or tostring(value), recorded.name(each))
end

local function pair(rule, field, a, b)
  return refusal(rule, field, { shown(a.fields[field], a), shown(b.fields[field], b) })
end

-- ---- one record for one measurement ----

-- What was measured, without what was thought of it.
local function measurement(record)
  local result = {}
  for name, value in pairs(record.result) do
    if name ~= "evidence" then result[name] = value end
  end
  return result
end

local function first_difference(a, b)
  for _, name in ipairs(schema.names(a)) do
    if json.encode(a[name]) ~= json.encode(b[name]) then return "result." .. name end
  end
  return "result"
end

---Copies of one record become one, an excluding copy before any other. Two measurements under one
---key are refused.
---@param all kvr.Recorded[]
---@return kvr.Recorded[] kept
---@return kvr.Refusal[]
function M.collapse(all)
  local out, refusals, at = {}, {}, {}
  for _, each in ipairs(all) do
    local i = at[each.record.key]
    if not i then
      out[#out + 1] = each
      at[each.record.key] = #out
    else
      local ours, theirs = measurement(out[i].record), measurement(each.record)
      if json.encode(ours) ~= json.encode(theirs) then
        local field = first_difference(ours, theirs)
        local name = field:match("[^.]*$")
        refusals[#refusals + 1] = refusal("two measurements under one key", field, {
          shown(json.encode(ours[name]), out[i]), shown(json.encode(theirs[name]), each),
        })
      elseif evidence.excluded(each.record.result) then
        out[i] = each
      end
    end
  end
  return out, refusals
end

-- ---- fields ----

local rules = {
  { "^slo%.", "more than one SLO" },
  { "kv_events", "KV events on and off" },
  { "^arrivals%.", "more than one arrival plan" },
  { "^workload%.", "more than one workload" },
  { "^fleet%.", "more than one fleet" },
  { "^router%.", "more than one router" },
  { "^measure%.", "more than one window" },
  { "", "more than one program" },
}

local function rule_of(field)
  for _, rule in ipairs(rules) do
    if field:find(rule[1]) then return rule[2] end
  end
end

-- Fields of arrivals mean something within one loop only.
local function scope_of(field, each)
  return field:find("^arrivals%.") and field .. each.regime or field
end

local function mixed_fields(all, allowed)
  local refusals, names, first, refused = {}, {}, {}, {}
  for _, each in ipairs(all) do
    for field in pairs(each.fields) do names[field] = true end
  end
  for _, field in ipairs(schema.names(names)) do
    for _, each in ipairs(allowed[field] and {} or all) do
      local scope = scope_of(field, each)
      first[scope] = first[scope] or each
      if first[scope].fields[field] ~= each.fields[field] and not refused[scope] then
        refused[scope] = true
        refusals[#refusals + 1] = pair(rule_of(field), field, first[scope], each)
      end
    end
  end
  return refusals
end

local function without_slo(all)
  local out = {}
  for _, each in ipairs(all) do
    if not each.fields["slo.ttft_ms"] and not each.fields["slo.itl_ms"] then
      out[1] = out[1] or refusal("no SLO", "slo", {})
      if #out[1].cells < 2 then table.insert(out[1].cells, recorded.name(each)) end
    end
  end
  if out[1] then out[1] = refusal("no SLO", "slo", out[1].cells) end
  return out
end

-- ---- policies ----

-- One name, one text: with its params in the name, only the hashes can differ.
local function mixed_scripts(all)
  local refusals, first = {}, {}
  for _, each in ipairs(all) do
    for _, role in ipairs({ "policy", "spill" }) do
      local script = each.record.cell[role]
      local hash = type(script) == "table" and script.hash or "none"
      local scope = role .. " " .. each.policy
      local known = first[scope]
      if not known then
        first[scope] = { each = each, hash = hash }
      elseif known.hash ~= hash and not known.refused then
        known.refused = true
        refusals[#refusals + 1] = refusal("more than one text of a script", role .. ".hash", {
          shown(known.hash, known.each), shown(hash, each),
        })
      end
    end
  end
  return refusals
end

local function few_policies(all)
  local seen, count = {}, 0
  for _, each in ipairs(all) do
    if not seen[each.policy] then count = count + 1 end
    seen[each.policy] = true
  end
  if count >= 2 then return {} end
  local names = {}
  for i = 1, math.min(2, #all) do names[i] = recorded.name(all[i]) end
  return { refusal("fewer than two policies", "policy", names) }
end

---@return string # of a place
local function place_of(each, axes)
  local parts = { each.regime }
  for i, axis in ipairs(axes) do parts[i + 1] = ("%s %s"):format(axis, tostring(each.at[axis])) end
  return table.concat(parts, ", ")
end

-- Policies at one place must have been asked the same bytes, which the seed makes.
local function disjoint_seeds(all, axes)
  local places, refusals = {}, {}
  for _, each in ipairs(all) do
    local place = place_of(each, axes)
    places[place] = places[place] or {}
    local by_policy = places[place]
    by_policy[each.policy] = by_policy[each.policy] or { first = each, seeds = {} }
    by_policy[each.policy].seeds[each.seed] = true
  end
  for _, place in ipairs(schema.names(places)) do
    local names = schema.names(places[place])
    for i = 2, #names do
      local a, b, shared = places[place][names[1]], places[place][names[i]], false
      for seed in pairs(a.seeds) do shared = shared or b.seeds[seed] end
      if not shared then
        refusals[#refusals + 1] = refusal("no seed in common at " .. place, "seed", {
          shown(a.first.seed, a.first), shown(b.first.seed, b.first),
        })
      end
    end
  end
  return refusals
end

---Why these cells do not belong together; nothing: they do.
---@param all kvr.Recorded[] after `collapse` and recorded.place
---@param fields string[] that may differ: the axes'
---@param axes string[] their names
---@return kvr.Refusal[]
function M.refusals(all, fields, axes)
  local allowed, out = { ["workload.working_set"] = true }, {}
  for _, field in ipairs(fields) do allowed[field] = true end
  for _, found in ipairs({
    without_slo(all), mixed_fields(all, allowed), mixed_scripts(all), few_policies(all),
    disjoint_seeds(all, axes),
  }) do
    for _, each in ipairs(found) do out[#out + 1] = each end
  end
  return out
end

return M
