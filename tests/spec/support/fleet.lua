-- A small fleet for one script: it fills a picture as the router does, and asks the real slot.
--
--   local f = fleet.policy("prefix_affinity", { by = "load" })
--   f:see({ serial = 3, session = 7 }, { { in_flight = 2 }, { match_blocks = 5 } })
--   local index, reason, affine = f:pick()
--
-- Fields of rows and of the request are those of core/model/abi.h; what is left out is an idle
-- replica that is up, and a request without identity. Indices are 0-based, as in a policy.

local ffi = require("ffi")
local lab = require("spec.support.lab")
local C = lab.C

local MAX_ROWS = 64
local NAN = 0 / 0
local ROW_SIZE = ffi.sizeof("struct kvr_replica_view")
local REQUEST_SIZE = ffi.sizeof("struct kvr_request_view")

local Fleet = {}
Fleet.__index = Fleet

local function id_of(index)
  return (index + 1ULL) * 0x9e3779b97f4a7c15ULL
end

local function param_array(params)
  local keys = {}
  for key in pairs(params) do
    keys[#keys + 1] = key
  end
  table.sort(keys)
  local array = ffi.new("struct kvr_script_param[?]", math.max(#keys, 1))
  local kept = {}
  for i, key in ipairs(keys) do
    local value = tostring(params[key])
    kept[#kept + 1], kept[#kept + 2] = key, value
    array[i - 1].key, array[i - 1].value = lab.slice(key), lab.slice(value)
  end
  return array, #keys, kept
end

-- nil and the reason when the script is refused.
local function make(kind, name, text, params, seed)
  local picture = ffi.gc(ffi.new("struct kvr_picture"), C.kvr_picture_deinit)
  C.kvr_picture_init(picture, MAX_ROWS)
  local slot = C.kvr_slot_create(kind, picture, seed or 1)
  local self = setmetatable({ picture = picture }, Fleet)
  self.slot = ffi.gc(slot, function(dying)
    C.kvr_slot_destroy(dying)
    self.picture = nil -- kept alive until here
  end)
  self.decision = ffi.new("struct kvr_decision")
  self.source = { path = name .. ".lua", text = text, params = params or {} }
  return self:reload()
end

---Loads its text once more, as when the file is saved: what it learned goes through export and
---import. nil and the reason when it is refused.
function Fleet:reload()
  local source, failure = self.source, ffi.new("struct kvr_error")
  local array, count = param_array(source.params)
  if C.kvr_slot_load(self.slot, lab.slice(""), lab.slice(source.path), lab.slice(source.text),
                     array, count, failure) ~= 0 then
    return nil, ffi.string(failure.text)
  end
  return self
end

local M = { MAX_ROWS = MAX_ROWS }

---A fleet whose policy is policies/NAME.lua.
function M.policy(name, params, seed)
  return make(C.KVR_SCRIPT_POLICY, name, lab.read("policies/" .. name .. ".lua"), params, seed)
end

---A fleet whose spill rule is policies/spill/NAME.lua.
function M.spill(name, params, seed)
  return make(C.KVR_SCRIPT_SPILL, name, lab.read("policies/spill/" .. name .. ".lua"), params, seed)
end

---A fleet whose policy is the text given.
function M.policy_text(name, text, params, seed)
  return make(C.KVR_SCRIPT_POLICY, name, text, params, seed)
end

local rings = {} -- by number of rows; a replica's identity is its index, here

local function ring_of(count)
  if not rings[count] then
    local ring = ffi.gc(ffi.new("struct kvr_hash_ring"), C.kvr_hash_ring_deinit)
    C.kvr_hash_ring_init(ring)
    local members = ffi.new("struct kvr_ring_member[?]", math.max(count, 1))
    for i = 0, count - 1 do -- weights alike: a test of weights is then a test of the policy
      members[i].id, members[i].weight = id_of(i), 1
    end
    C.kvr_hash_ring_build(ring, members, count, 0)
    rings[count] = ring
  end
  return rings[count]
end

---An idle replica that is up, into picture.rows[index].
---@return ffi.cdata* row
function Fleet:idle_row(index)
  local row = self.picture.rows[index]
  ffi.fill(row, ROW_SIZE)
  row.weight, row.ramp, row.capacity, row.age_ms = 1, 1, math.huge, 60000
  row.remote_in_flight, row.remote_age_ms = NAN, NAN
  row.running, row.waiting, row.kv_usage, row.engine_hit_rate = NAN, NAN, NAN, NAN
  row.signals_age_ms, row.resident_tokens, row.ttft_ms = NAN, NAN, NAN
  row.prefill_tokens_per_s, row.key_age_ms = NAN, NAN
  row.output_tokens, row.token_ms = NAN, NAN
  row.id, row.name = index, index + 1
  row.operational, row.administrative, row.available = 3, 2, true
  return row
end

---A request without identity and prompt, into picture.request.
---@return ffi.cdata* request
function Fleet:plain_request()
  local request = self.picture.request
  ffi.fill(request, REQUEST_SIZE)
  request.now_ms, request.max_tokens, request.slo_ttft_ms = 1000, NAN, NAN
  request.block_bytes = 64
  return request
end

---The picture is complete when rows 0 .. count-1 and the request are written.
function Fleet:complete(count)
  local picture = self.picture
  for i = 0, count - 1 do
    local row = picture.rows[i]
    row.load = row.in_flight / (row.weight * row.ramp)
    row.prefill_tokens = row.uncached_tokens
      + math.max(picture.request.prompt_tokens - row.match_tokens, 0)
    picture.ids[i], picture.weights[i] = id_of(i), row.weight
  end
  picture.ring = ring_of(count)
  C.kvr_picture_summarise(picture, count)
end

---Sets what the next pick sees. `request.chain` is a list of block keys; load is computed.
function Fleet:see(request, rows)
  local r = self:plain_request()
  for key, value in pairs(request) do
    if key ~= "chain" then r[key] = value end
  end
  if request.chain then
    self.chain = ffi.new("struct kvr_block_key[?]", #request.chain)
    for i, key in ipairs(request.chain) do
      self.chain[i - 1].key = key
    end
    r.chain, r.chain_len = self.chain, #request.chain
    r.prompt_bytes = #request.chain * r.block_bytes
  end
  for i, fields in ipairs(rows) do
    local row = self:idle_row(i - 1)
    for key, value in pairs(fields) do
      row[key] = value
    end
  end
  self:complete(#rows)
end

local function answer(self, code)
  local decision = self.decision
  if code ~= 0 then return nil, ffi.string(C.kvr_slot_last_error(self.slot)) end
  if decision.verdict ~= C.KVR_VERDICT_PICK then return nil end
  return decision.index, ffi.string(C.kvr_reason_text(decision.reason)), decision.affine
end

---@return integer? index, string? reason, boolean? affine; nil and a text when the call failed
function Fleet:pick()
  return answer(self, C.kvr_slot_pick(self.slot, self.decision))
end

---@return integer? index, string? reason
function Fleet:spill(preferred)
  local index, reason = answer(self, C.kvr_slot_spill(self.slot, preferred, self.decision))
  return index, reason
end

---How often each index was picked over serials 0 .. n-1; ask is Fleet.pick unless given.
function Fleet:spread(n, ask)
  local counts = {}
  for serial = 0, n - 1 do
    self.picture.request.serial = serial
    local index = (ask or self.pick)(self)
    counts[index] = (counts[index] or 0) + 1
  end
  return counts
end

local function order_list(order, count)
  local list = {}
  for i = 0, count - 1 do
    list[i + 1] = order.rows[i]
  end
  return list
end

---Rows clockwise from the key, as a list; of the rows last seen.
function Fleet:ring_order(key, salt)
  return order_list(self.picture.order, C.kvr_picture_ring_order(self.picture, key, salt or 0, 0))
end

---Rows by falling rendezvous score, as a list.
function Fleet:hrw_order(key, salt)
  return order_list(self.picture.order, C.kvr_picture_hrw_order(self.picture, key, salt or 0, 0))
end

---A key whose ring order starts at row `index`, of the rows last seen.
function Fleet:key_at_home(index)
  for key = 1, 10000 do
    if self:ring_order(key)[1] == index then return key end
  end
  error("no key has its home at row " .. index)
end

---The k-th available row (k modulo their number); nil when there is none.
function Fleet:nth_available(k)
  local view = self.picture.view
  if view.available == 0 then return nil end
  k = k % view.available
  for i = 0, view.count - 1 do
    if self.picture.rows[i].available then
      if k == 0 then return i end
      k = k - 1
    end
  end
end

function Fleet:is_available(index)
  return self.picture.rows[index].available
end

---Bytes of the Lua heap in force.
function Fleet:memory()
  return tonumber(C.kvr_slot_memory(self.slot))
end

---struct kvr_script_counters
function Fleet:counters()
  return C.kvr_slot_counters(self.slot)
end

---The name that the script's own text gives.
function Fleet:script_name()
  return ffi.string(C.kvr_slot_info(self.slot).name)
end

function Fleet:needs()
  return C.kvr_slot_info(self.slot).needs
end

---"k=v k=v" in force
function Fleet:params()
  return ffi.string(C.kvr_slot_info(self.slot).params)
end

function Fleet:default_spill()
  return ffi.string(C.kvr_slot_info(self.slot).default_spill)
end

return M
