-- Files that a command was given: regular ones, and pipes, as a shell's <(...) is one. Devices,
-- which never end, are refused, and so is a pipe that nobody writes to (core/base/file.h). What is
-- read whole has a most; a pipe can be read once.
local ffi = require("kvroute.ffi")

local M = {}

local CHUNK = 64 * 1024

---@param path string
---@return kvr.OpenFile? # read(bytes), close()
---@return string? why
M.open = ffi.open_given

---@param path string
---@param most integer bytes
---@return string? text
---@return string? why
function M.read(path, most)
  local file, why = M.open(path)
  if not file then return nil, why end
  local parts, bytes = {}, 0
  local chunk, failure = file:read(CHUNK)
  while chunk and bytes <= most do
    parts[#parts + 1], bytes = chunk, bytes + #chunk
    chunk, failure = file:read(CHUNK)
  end
  file:close()
  if failure then return nil, ("cannot read %s: %s"):format(path, failure) end
  if bytes > most then return nil, ("%s is over %d bytes"):format(path, most) end
  return table.concat(parts)
end

---A Lua file as a function, as loadfile has it.
---@param path string
---@param most integer bytes
---@return function? chunk
---@return string? why
function M.load(path, most)
  local text, why = M.read(path, most)
  if not text then return nil, why end
  return loadstring(text:gsub("^#[^\n]*", "", 1), "@" .. path)
end

return M
