-- Recorded traces as workloads: files of any format that the importers know, put into a simulation
-- a row at a time.
local lfs = require("lfs")
local ffi = require("kvroute.ffi")
local import = require("kvroute.import")
local json = require("kvroute.json")
local store = require("kvroute.store")

local M = {}

---@class kvr.Trace
---@field format string of import.lua
---@field files string[]
---@field options table of that format
---@field hash string of the files' bytes and of what reads them

local hashes = {} -- of files, by path, size and time of change

local function hash_of(path)
  local found = lfs.attributes(path)
  if found and found.mode ~= "file" then
    error(path .. ": is no regular file, and a run reads its traces more than once", 0)
  end
  local known = not found and "" or ("%s %d %d"):format(path, found.size, found.modification)
  if not hashes[known] then
    local bytes = store.read_file(path)
    if not bytes then error("there is no trace " .. path, 0) end
    hashes[known] = ffi.hash128(bytes)
  end
  return hashes[known]
end

---@param format string
---@param files string[]
---@param options table?
---@return kvr.Trace
function M.new(format, files, options)
  local parts = {}
  for _, path in ipairs(files) do parts[#parts + 1] = hash_of(path) end
  -- Side files are options, and bring their texts with them.
  for _, value in pairs(options or {}) do
    if type(value) == "string" and lfs.attributes(value, "mode") == "file" then
      parts[#parts + 1] = hash_of(value)
    end
  end
  table.sort(parts)
  for _, path in ipairs(import.sources(format)) do parts[#parts + 1] = hash_of(path) end
  parts[#parts + 1] = hash_of(package.searchpath("kvroute.trace", package.path))
  return {
    format = format, files = json.list(files), options = options or {},
    hash = ffi.hash64(table.concat(parts, " ")),
  }
end

---A cell is known by the hash of its trace: another text in the same file would be its result.
---@param trace kvr.Trace
function M.check(trace)
  if M.new(trace.format, trace.files, trace.options).hash ~= trace.hash then
    error(table.concat(trace.files, ", ") .. ": has changed since the run began", 0)
  end
end

local function feed(workload, trace)
  M.check(trace)
  local C, failure = ffi.simulator(), ffi.new("struct kvr_error")
  local reader = ffi.gc(C.kvr_trace_create(workload), C.kvr_trace_destroy)
  for row in import.rows(trace.format, trace.files, trace.options) do
    local line = json.encode(row) .. "\n"
    if C.kvr_trace_feed(reader, line, #line, failure) ~= 0 then
      error(("%s: %s"):format(trace.files[1], ffi.string(failure.text)), 0)
    end
  end
  if C.kvr_trace_count(reader) == 0 then error(trace.files[1] .. ": holds no request", 0) end
  C.kvr_trace_destroy(ffi.gc(reader, nil))
end

---Appends all requests to a workload of kind LIST. A trace that cannot be read fails its cell.
---@param workload ffi.cdata*
---@param trace kvr.Trace
function M.fill(workload, trace)
  local ok, why = pcall(feed, workload, trace)
  if not ok then error({ reason = why }) end
end

return M
