-- The library of the lab through FFI. Its declarations are read from the headers of core, so that a
-- spec cannot believe in another layout than the one that was compiled; what Lua scripts see as
-- const is writable here. KVR_BUILD names the build directory (build), KVR_LAB the library itself.

local ffi = require("ffi")
-- This declares the types of headers whose inline functions ffi.cdef cannot read.
local C = require("kvroute.ffi").simulator()

local M = { C = C }

local words = { KVR_RO = "", KVR_EXPORT = "", KVR_MUST_USE = "" }

local function declare(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  for name, value in text:gmatch("#define%s+(KVR_[%w_]+)[ \t]+(%d+)") do
    words[name] = value
  end
  text = ("\n" .. text):gsub("\n[ \t]*#[^\n]*", "\n"):gsub("KVR_PTR(%b())", "%1 *")
  ffi.cdef((text:gsub("%((struct [%w_]+)%) %*", "%1 *"):gsub("%((uint32_t)%) %*", "%1 *")
    :gsub("KVR_[%w_]+", words)))
end

declare("core/base/pages.h")
declare("core/model/abi.h")
declare("core/model/hash_ring.h")
declare("core/model/window.h")
declare("core/model/view.h")
declare("core/script/reason.h")
declare("core/script/slot.h")

---@param text string must stay referenced while the slice is in use
function M.slice(text)
  return ffi.new("struct kvr_slice", text, #text)
end

---@return string
function M.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

return M
