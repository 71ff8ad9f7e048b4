-- policies/types.lua and policies/README.md say what scripts may read and call: they must not drift
-- from the layout that is compiled and from the sandbox.

local fleet = require("spec.support.fleet")
local lab = require("spec.support.lab")

local abi = lab.read("core/model/abi.h")
local types = lab.read("policies/types.lua")
local readme = lab.read("policies/README.md")
local sandbox = lab.read("core/script/sandbox.lua")

local function fields_of_struct(name)
  local body = abi:match("struct " .. name .. " {(.-)\n};")
  local fields = {}
  for line in body:gmatch("[^\n]+") do
    local field = line:match("KVR_RO [%w_]*%s?([%w_]+);")
    if field and not line:find("KVR_PTR", 1, true) then fields[#fields + 1] = field end
  end
  table.sort(fields)
  return fields
end

local function fields_of_class(name)
  local block = types:match("%-%-%-@class " .. name:gsub("%.", "%%.") .. "\n(.-)\n[^-]")
    or types:match("%-%-%-@class " .. name:gsub("%.", "%%.") .. "\n(.-)\n\n")
  local fields = {}
  for field in block:gmatch("%-%-%-@field ([%a_][%w_]*)") do
    fields[#fields + 1] = field
  end
  table.sort(fields)
  return fields
end

local function helpers_in(text)
  local names = {}
  for name in text:gmatch("function kvr%.([%w_]+)%(") do
    names[#names + 1] = name
  end
  table.sort(names)
  return names
end

describe("types.lua", function()
  for struct, class in pairs {
    kvr_request_view = "kvr.Request",
    kvr_replica_view = "kvr.Row",
    kvr_view = "kvr.View",
    kvr_order = "kvr.Order",
    kvr_observation = "kvr.Event",
  } do
    it("has the fields of struct " .. struct, function()
      local fields = fields_of_struct(struct)
      assert.is_true(#fields >= 1)
      assert.same(fields, fields_of_class(class))
    end)
  end

  it("has the helpers of the sandbox", function()
    local helpers = helpers_in(sandbox)
    assert.is_true(#helpers >= 8)
    assert.same(helpers, helpers_in(types))
  end)
end)

describe("README.md", function()
  it("names every helper", function()
    for _, name in ipairs(helpers_in(sandbox)) do
      assert.is_truthy(readme:find("kvr." .. name .. "(", 1, true), name)
    end
  end)

  it("names every script with its params, their defaults and its reasons", function()
    local is_no_reason = { openings = true, work = true, active = true } -- in `needs`; and fields
    for _, field in ipairs(fields_of_struct("kvr_replica_view")) do is_no_reason[field] = true end
    for name, make in pairs {
      round_robin = fleet.policy, least_outstanding = fleet.policy, p2c = fleet.policy,
      session_affinity = fleet.policy, bounded_session_affinity = fleet.policy,
      prefix_hash = fleet.policy, prefix_affinity = fleet.policy, preble_cap = fleet.policy,
      lmetric = fleet.policy, smetric = fleet.policy,
      llmd_sticky = fleet.policy, dynamo_cost = fleet.policy, cache_aware = fleet.policy,
      dualmap = fleet.policy, min_ttft = fleet.policy, preble_e2 = fleet.policy,
      off = fleet.spill, load_min = fleet.spill, load_mean = fleet.spill, tokens = fleet.spill,
      hit_rate = fleet.spill,
    } do
      local line = readme:match("\n| " .. name .. " |([^\n]*)")
      assert.is_string(line, name)
      local folder = make == fleet.spill and "policies/spill/" or "policies/"
      for reason in lab.read(folder .. name .. ".lua"):gmatch('[,d] "([a-z0-9_]+)"') do
        if not is_no_reason[reason] then
          assert.is_truthy(line:find("`" .. reason .. "`", 1, true), name .. ": " .. reason)
        end
      end
      for key, value in assert(make(name)):params():gmatch("(%S+)=(%S+)") do
        local found = line:find("`" .. key .. "` %(`?" .. value:gsub("%p", "%%%0"))
        assert.is_truthy(found, name .. ": " .. key .. "=" .. value)
      end
    end
  end)

  it("has an example that works", function()
    local text = readme:match("```lua\n(.-)```")
    local f = assert(fleet.policy_text("example", text))
    assert.equal("least_tokens", f:script_name())
    f:see({}, { { uncached_tokens = 900, weight = 2 }, { uncached_tokens = 500 }, {
      uncached_tokens = 0, available = false } })
    assert.same({ 0, "least_tokens", false }, { f:pick() })
  end)
end)
