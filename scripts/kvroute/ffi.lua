-- The C side: the symbols of this binary, or, under plain luajit, those of the library that KVR_LAB
-- or KVR_BUILD names. Structs are described by the very text that declares them, so that no list of
-- fields stands twice.
local bit = require("bit")
local ffi = require("ffi")

ffi.cdef([[
  struct kvr_hash128 { uint64_t low, high; };
  struct kvr_hash128 XXH3_128bits(const void *data, size_t len);
  uint64_t XXH3_64bits(const void *data, size_t len);
  const char *kvr_sim_declarations(void);
  void kvr_sim_sizes(uint32_t sizes[4]);
  int prctl(int option, unsigned long a, unsigned long b, unsigned long c, unsigned long d);
  struct kvr_stream; /* C's FILE */
  size_t fread(void *bytes, size_t size, size_t count, struct kvr_stream *file);
  int ferror(struct kvr_stream *file);
  int fclose(struct kvr_stream *file);
]])

local PR_SET_PDEATHSIG, SIGKILL = 1, 9

local M = {}

local loaded
local function library()
  if not loaded then
    local here = pcall(function() return ffi.C.kvr_sim_declarations end)
    local path = os.getenv("KVR_LAB") or (os.getenv("KVR_BUILD") or "build") .. "/libkvroute_lab.so"
    local ok, got = true, ffi.C
    if not here then ok, got = pcall(ffi.load, path) end
    if not ok then error(("%s (made by: ninja -C build kvroute_lab)"):format(got), 0) end
    loaded = got
  end
  return loaded
end

---A process that has called this dies with its parent.
function M.die_with_parent()
  ffi.C.prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0)
end

---@param text string
---@return string # 32 hexadecimal digits
function M.hash128(text)
  local h = library().XXH3_128bits(text, #text)
  return bit.tohex(h.high) .. bit.tohex(h.low)
end

---As rows name the text of a script.
---@param text string
---@return string # 16 hexadecimal digits
function M.hash64(text)
  return bit.tohex(library().XXH3_64bits(text, #text))
end

-- ---- files ----

-- As a file of Lua's, for reading.
---@class kvr.OpenFile
local OpenFile = {}
OpenFile.__index = OpenFile

---@param bytes integer at most
---@return string? # nil at its end
---@return string? why where it failed
function OpenFile:read(bytes)
  local buffer = ffi.new("char[?]", bytes)
  local len = tonumber(ffi.C.fread(buffer, 1, bytes, self.stream))
  if len > 0 then return ffi.string(buffer, len) end
  if ffi.C.ferror(self.stream) ~= 0 then return nil, "it cannot be read" end
end

function OpenFile:close()
  ffi.C.fclose(ffi.gc(self.stream, nil))
  self.stream = nil
end

---Opens what a command was given: see kvr_file_open_given.
---@param path string
---@return kvr.OpenFile?
---@return string? why
function M.open_given(path)
  local C, failure = M.simulator(), ffi.new("struct kvr_error")
  local out = ffi.new("struct kvr_stream *[1]")
  if C.kvr_file_open_given(path, out, failure) ~= 0 then return nil, ffi.string(failure.text) end
  return setmetatable({ stream = ffi.gc(out[0], ffi.C.fclose) }, OpenFile)
end

-- ---- the simulator ----

---@class kvr.Field
---@field name string
---@field type string "double", "uint32_t", "struct kvr_profile", ...
---@field pointer boolean
---@field length integer? of an array

local structs = {} ---@type table<string, kvr.Field[]>
local by_name = {} ---@type table<string, table<string, kvr.Field>>

-- "const double *a, b[4]" as fields. Commas share the type, not the star.
local function add_fields(fields, statement)
  statement = statement:gsub("^const%s+", "")
  local tag, rest = statement:match("^(%a+)%s+(.*)$")
  local tagged = tag == "struct" or tag == "enum"
  local type_name, names = (tagged and rest or statement):match("^([%w_]+)%s*(.*)$")
  if tagged then type_name = tag .. " " .. type_name end
  for declarator in names:gmatch("[^,]+") do
    local bare, length = declarator:match("^(.-)%[(.-)%]")
    fields[#fields + 1] = {
      name = (bare or declarator):match("([%w_]+)%s*$"), type = type_name,
      pointer = declarator:find("*", 1, true) ~= nil, length = tonumber(length),
    }
  end
end

local function read_structs(text)
  text = text:gsub("/%*.-%*/", "")
  for name, body in text:gmatch("struct ([%w_]+) (%b{});") do
    local fields = {}
    for statement in body:sub(2, -2):gmatch("([^;]+);") do
      -- An enum or struct within is not among what is assigned by name.
      if not statement:find("[{}]") then add_fields(fields, (statement:gsub("^%s+", ""))) end
    end
    structs[name], by_name[name] = fields, {}
    for _, field in ipairs(fields) do by_name[name][field.name] = field end
  end
end

local simulator
---The simulator's functions. Their declarations come from the library itself.
---@return ffi.namespace*
function M.simulator()
  if simulator then return simulator end
  local C = library()
  local text = ffi.string(C.kvr_sim_declarations())
  -- This file may be loaded anew in one process, by busted.
  if not pcall(ffi.sizeof, "struct kvr_sim_options") then
    ffi.cdef(text)
    ffi.cdef("int kvr_file_open_given(const char *path, struct kvr_stream **file, "
      .. "struct kvr_error *error);")
  end
  read_structs(text)
  local sizes = ffi.new("uint32_t[4]")
  C.kvr_sim_sizes(sizes)
  for i, name in ipairs({ "options", "record", "result" }) do
    local ours = ffi.sizeof("struct kvr_sim_" .. name)
    if ours ~= sizes[i - 1] then
      error(("struct kvr_sim_%s is read as %d bytes and has %d"):format(name, ours, sizes[i - 1]))
    end
  end
  simulator = C
  return C
end

---@param struct string name of a struct of the simulator, without "struct"
---@return kvr.Field[]
function M.fields(struct)
  M.simulator()
  return structs[struct]
end

local whole = { uint16_t = 2 ^ 16, uint32_t = 2 ^ 32, uint64_t = 2 ^ 53, size_t = 2 ^ 53 }

-- What C would take without a word, and take for something else: 2.5 as 2, -1 as 4294967295.
local function check_number(value, type_name, name)
  if type(value) ~= "number" or value ~= value or math.abs(value) == math.huge then
    error(("%s is a number, not %s"):format(name, tostring(value)), 0)
  end
  local end_ = whole[type_name]
  if end_ and (value % 1 ~= 0 or value < 0 or value >= end_) then
    error(("%s is a whole number from 0 to %.0f, not %.15g"):format(name, end_ - 1, value), 0)
  end
end

---Numbers as a C array.
---@param values number[]
---@param what string for messages
---@return ffi.cdata* # double[]
function M.doubles(values, what)
  for i, value in ipairs(values) do
    check_number(value, "double", ("%s[%d]"):format(what, i))
  end
  return ffi.new("double[?]", #values, values)
end

---Sets numbers, booleans and texts of a struct by name.
---@param object ffi.cdata*
---@param struct string
---@param values table
---@param what string whose values they are, for messages
function M.assign(object, struct, values, what)
  M.simulator()
  for name, value in pairs(values) do
    local field = by_name[struct][name]
    if not field then error(what .. " has no field " .. tostring(name), 0) end
    if type(value) == "boolean" and field.type ~= "bool" then value = value and 1 or 0 end
    if field.type == "char" and not field.pointer then
      local room = ffi.sizeof(object[name]) - 1
      if type(value) ~= "string" or #value > room then
        error(("%s: %s is a text of at most %d bytes"):format(what, name, room), 0)
      end
    elseif field.type ~= "bool" and not field.pointer then
      check_number(value, field.type, ("%s: %s"):format(what, name))
    end
    object[name] = value
  end
end

---A struct as a table: numbers, nested structs, and 64-bit numbers as 16 hexadecimal digits.
---@param object ffi.cdata*
---@param struct string
---@return table
function M.table(object, struct)
  M.simulator()
  local out = {}
  for _, field in ipairs(structs[struct]) do
    local value = object[field.name]
    local nested = field.type:match("^struct ([%w_]+)$")
    if field.pointer then
      value = nil
    elseif nested then
      value = M.table(value, nested)
    elseif field.type == "uint64_t" then
      value = bit.tohex(value)
    elseif field.length then
      value = ffi.string(value)
    end
    out[field.name] = value
  end
  return out
end

M.new, M.string, M.cast, M.gc = ffi.new, ffi.string, ffi.cast, ffi.gc

return M
