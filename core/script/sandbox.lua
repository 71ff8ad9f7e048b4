-- What a script finds around it. Evaluated once in every VM with all of Lua in reach; a script gets
-- only `env`. Returns it and the views.
--
-- Absent from `env` on purpose: pairs and next (their order changes from run to run), string,
-- table, os, io, ffi, debug, load*, require, pcall, coroutine, setmetatable, getfenv. Scripts are
-- operator code: this guards against mistakes, not against malice.
-- luacheck: globals ffi
local abi, sizes, at = ...

local ffi, table = ffi, table
local type, tostring, error, pairs, cast = type, tostring, error, pairs, ffi.cast

-- Without this, ("x"):rep(1e9) would reach the string library.
getmetatable("").__index = nil

ffi.cdef(abi)
for name, size in pairs(sizes) do
  local found = ffi.sizeof("struct " .. name)
  if found ~= size then
    error("ABI drift: struct " .. name .. " has " .. tostring(found) .. " bytes in Lua and "
      .. size .. " in C", 0)
  end
end

-- ---- views -------------------------------------------------------------------------------------

local row_array = ffi.typeof("const struct kvr_replica_view *")
local index_array = ffi.typeof("const uint32_t *")
local key_array = ffi.typeof("const struct kvr_block_key *")

local function no_field(what, name)
  error(what .. " has no field " .. tostring(name), 3)
end

local function out_of_range(what, i, close, count)
  local why = count == 0 and ": there is none" or " 0.." .. count - 1
  error(what .. tostring(i) .. close .. " is out of range" .. why, 3)
end

ffi.metatype("struct kvr_view", {
  __index = function(view, i)
    if type(i) ~= "number" then no_field("view", i) end
    if not (i >= 0 and i < view.count) then out_of_range("view[", i, "]", view.count) end
    return cast(row_array, view.rows)[i]
  end,
  __len = function(view) return view.count end,
})

ffi.metatype("struct kvr_order", {
  __index = function(order, i)
    if type(i) ~= "number" then no_field("order", i) end
    if not (i >= 0 and i < order.count) then out_of_range("order[", i, "]", order.count) end
    return cast(index_array, order.rows)[i]
  end,
  __len = function(order) return order.count end,
})

-- What a struct of C has is found before these are asked.
ffi.metatype("struct kvr_replica_view", {
  __index = function(_, name) no_field("a row of view", name) end,
})

ffi.metatype("struct kvr_observation", {
  __index = function(_, name) no_field("observation", name) end,
})

-- The key of block i (0-based), as its low and high 32 bits.
local function block(request, i)
  if not (i >= 0 and i < request.chain_len) then
    out_of_range("request:block(", i, ")", request.chain_len)
  end
  local key = cast(key_array, request.chain)[i]
  return key.key, key.high
end

ffi.metatype("struct kvr_request_view", {
  __index = function(_, name)
    if name == "block" then return block end
    no_field("request", name)
  end,
})

-- A reference, not a pointer: on a pointer, view[1] would silently read past the object.
local function reference(struct, pointer)
  return cast("const struct " .. struct .. " *", pointer)[0]
end

local request = reference("kvr_request_view", at.request)
local view = reference("kvr_view", at.view)
local order = reference("kvr_order", at.order)
local observation = reference("kvr_observation", at.observation)

-- ---- kvr: helpers that every policy may use -----------------------------------------------------

local c_order = "uint32_t (*)(void *, uint32_t, uint32_t, uint32_t)"
local c_ring_order = cast(c_order, at.ring_order)
local c_hrw_order = cast(c_order, at.hrw_order)
local c_least =
  cast("int32_t (*)(void *, uint32_t, uint32_t, uint32_t, uint32_t, double)", at.least)
local c_nth_available = cast("int32_t (*)(void *, uint32_t)", at.nth_available)
local c_first_available = cast("int32_t (*)(void *, uint32_t)", at.first_available)
local c_share = cast("double (*)(void *, uint32_t)", at.share)
local c_opening_share = cast("double (*)(void *, uint32_t)", at.opening_share)
local c_rare_opening = cast("uint32_t (*)(void *, double, uint32_t)", at.rare_opening)
local picture, vm = at.picture, at.vm
picture, vm = cast("void *", picture), cast("void *", vm)

-- HOLD: wait until the fleet changes. REJECT: refuse the request. No index, and no small number
-- that a slip could produce.
local kvr = { HOLD = -1001, REJECT = -1002 }

-- Addresses would differ from run to run.
local function plain_tostring(value)
  local kind = type(value)
  if kind == "table" or kind == "function" or kind == "cdata" then return kind end
  return tostring(value)
end

-- What C takes as 32 bits: its conversion would let NaN and 1.7 pass as some number. A key may come
-- from `bit`, whose results are signed: its least is low = -2^31.
local function whole(helper, name, value, low)
  if not (type(value) == "number" and value >= low and value < 2 ^ 32 and value % 1 == 0) then
    error(helper .. ": " .. name .. " must be a whole number" .. (low == 0 and " from 0 on" or "")
      .. ", got " .. plain_tostring(value), 3)
  end
end

local least_key = -2 ^ 31

local function number(helper, value)
  if type(value) ~= "number" then
    error(helper .. ": a number is expected, got " .. plain_tostring(value), 3)
  end
end

-- Row indices clockwise on the ring from `key` on. Unavailable rows are among them. A salt makes an
-- independent ring; a limit stops early. The next order overwrites this one.
function kvr.ring_order(key, salt, limit)
  whole("kvr.ring_order", "key", key, least_key)
  whole("kvr.ring_order", "salt", salt or 0, least_key)
  whole("kvr.ring_order", "limit", limit or 0, 0)
  c_ring_order(picture, key, salt or 0, limit or 0)
  return order
end

-- Row indices by falling rendezvous score, weighted.
function kvr.hrw_order(key, salt, limit)
  whole("kvr.hrw_order", "key", key, least_key)
  whole("kvr.hrw_order", "salt", salt or 0, least_key)
  whole("kvr.hrw_order", "limit", limit or 0, 0)
  c_hrw_order(picture, key, salt or 0, limit or 0)
  return order
end

-- Share of recent requests that had this routing key, NaN when the windows do not follow it.
function kvr.share(key)
  whole("kvr.share", "key", key, least_key)
  return c_share(picture, key)
end

-- Share of recent requests that begin with the same `blocks` blocks as this one, NaN when it has
-- fewer or nobody counts. Counted are 1, 2, 4, 8, 16, 32, 64, 96, ..., 512 blocks.
function kvr.opening_share(blocks)
  whole("kvr.opening_share", "blocks", blocks, 0)
  if not (blocks >= 1 and blocks <= 512 and (32 % blocks == 0 or blocks % 32 == 0)) then
    error("kvr.opening_share: blocks must be 1, 2, 4, 8, 16 or a multiple of 32 up to 512, got "
      .. blocks, 2)
  end
  return c_opening_share(picture, blocks)
end

-- The fewest leading blocks, of those counted and from `least` on, that at most that share of
-- recent requests begin with; nil: none, or nobody counts.
function kvr.rare_opening(share, least)
  number("kvr.rare_opening", share)
  whole("kvr.rare_opening", "least", least or 1, 0)
  local blocks = c_rare_opening(picture, share, least or 1)
  if blocks > 0 then return blocks end
end

-- The scans of rows are C: a policy without a loop of its own compiles to one trace, and what comes
-- after the scan neither runs interpreted nor allocates.

local offsets = {} -- of the numbers of a row that may be compared
for _, field in ipairs {
  "weight", "ramp", "load", "in_flight", "capacity", "uncached_tokens", "prefill_tokens",
  "active_tokens", "remote_in_flight", "remote_age_ms", "age_ms", "running", "waiting",
  "kv_usage", "engine_hit_rate", "signals_age_ms", "match_tokens", "resident_tokens", "ttft_ms",
  "error_rate", "prefill_tokens_per_s", "output_tokens", "token_ms", "recent_uncached_tokens",
  "key_age_ms",
} do
  offsets[field] = ffi.offsetof("struct kvr_replica_view", field)
end

local none = 2 ^ 32 - 1 -- no index
local ever = 1 / 0      -- or never

local function least(field, blocks, except, assigned, recent_ms)
  local offset = offsets[field or "load"]
  if not offset then error("no number named " .. tostring(field) .. " in a row", 3) end
  local i = c_least(picture, offset, blocks, except, assigned, recent_ms)
  if i >= 0 then return i end
end

-- Index of the available row with the smallest `field` ("load" unless given); rows where it is NaN
-- are left out. Ties rotate by request.serial: the lowest index would take everything on an idle
-- fleet. nil when there is none.
function kvr.least(field)
  local i = least(field, 0, none, 0, ever)
  return i
end

-- Among the rows that hold at least `blocks` leading blocks of the prompt.
function kvr.least_matching(blocks, field)
  whole("kvr.least_matching", "blocks", blocks, 0)
  local i = least(field, blocks, none, 0, ever)
  return i
end

-- Among all rows but one.
function kvr.least_except(except, field)
  whole("kvr.least_except", "index", except, 0)
  local i = least(field, 0, except, 0, ever)
  return i
end

-- Among the rows that the plan has for this request's routing key.
function kvr.least_assigned(field)
  local i = least(field, 0, none, 1, ever)
  return i
end

-- Among the rows that this request's routing key came to within `ms`.
function kvr.least_recent(ms, field)
  number("kvr.least_recent", ms)
  local i = least(field, 0, none, 0, ms)
  return i
end

-- Index of the (n mod available)-th available row: round robin with n = request.serial.
function kvr.nth_available(n)
  if type(n) == "number" and n >= 2 ^ 32 then n = n % 2 ^ 32 end -- a counter may grow
  whole("kvr.nth_available", "n", n, 0)
  local i = c_nth_available(picture, n)
  if i >= 0 then return i end
end

-- Index of the first available row but `except` of the order just made, and its place in it; nil:
-- none.
function kvr.first_available(rows, except)
  if type(rows) ~= "cdata" then
    error("kvr.first_available: an order is expected, got " .. plain_tostring(rows), 2)
  end
  whole("kvr.first_available", "index", except or none, 0)
  local place = c_first_available(picture, except or none)
  if place >= 0 then return rows[place], place end
end

-- Index of the available row with the smallest cost(row), ties by rotation; a cost of nil or NaN
-- leaves the row out. `cost` is called twice for some rows: it must not change anything.
function kvr.least_by(cost)
  if type(cost) ~= "function" then
    error("kvr.least_by: a function is expected, got " .. plain_tostring(cost), 2)
  end
  local best, ties = 1 / 0, 0
  for i = 0, view.count - 1 do
    local row = view[i]
    local value = row.available and cost(row)
    if value then
      if value < best then
        best, ties = value, 1
      elseif value == best then
        ties = ties + 1
      end
    end
  end
  if ties == 0 then return nil end
  local skip = request.serial % ties
  for i = 0, view.count - 1 do
    local row = view[i]
    if row.available and cost(row) == best then
      if skip == 0 then return i end
      skip = skip - 1
    end
  end
end

-- ---- the environment ----------------------------------------------------------------------------

local c_unit = cast("double (*)(void *)", at.random_unit)
local c_below = cast("double (*)(void *, double)", at.random_below)
local c_exp = cast("double (*)(double)", at.exp)
local c_log = cast("double (*)(double)", at.log)
local c_pow = cast("double (*)(double, double)", at.pow)
local c_log_line = cast("void (*)(void *, const char *, size_t)", at.log_line)

-- As Lua's own, from the slot's seed: random(), random(high), random(low, high).
local function random(low, high)
  if not low then return c_unit(vm) end
  number("math.random", low)
  if high then number("math.random", high) end
  if not high then low, high = 1, low end
  local span = high - low + 1
  if not (span >= 1 and span <= 2 ^ 53) then error("math.random: empty or too wide", 2) end
  return low + c_below(vm, span)
end

-- One line in the router's log; the text alone is kept while the script runs.
local function log(...)
  local parts = { ... }
  for i = 1, select("#", ...) do parts[i] = plain_tostring(parts[i]) end
  local text = table.concat(parts, " ")
  c_log_line(vm, text, #text)
end

local base = {
  assert = assert, error = error, ipairs = ipairs, type = type, tonumber = tonumber,
  tostring = plain_tostring, log = log, bit = bit, kvr = kvr,
  -- exp, log and pow of the C library may differ in the last digit between machines.
  math = {
    abs = math.abs, ceil = math.ceil, floor = math.floor, fmod = math.fmod, huge = math.huge,
    max = math.max, min = math.min, modf = math.modf, pi = math.pi, sqrt = math.sqrt,
    random = random,
    exp = function(x)
      number("math.exp", x)
      return c_exp(x)
    end,
    log = function(x)
      number("math.log", x)
      return c_log(x)
    end,
    pow = function(x, y)
      number("math.pow", x)
      number("math.pow", y)
      return c_pow(x, y)
    end,
  },
}

setmetatable(base, {
  __index = function(_, name) error("no global named " .. tostring(name), 2) end,
})
local env = setmetatable({}, {
  __index = base,
  __newindex = function(_, name)
    error("global " .. tostring(name) .. " is assigned: say local", 2)
  end,
})

return env, request, view, observation
