-- The files an importer reads: plain or gzip, one after another, a line at a time; regular ones or
-- pipes. What is wrong with one is an error that names file, line and field.
local cjson = require("cjson")
local lfs = require("lfs")
local given = require("kvroute.given")

local M = {
  LINE_MAX = 64 * 1024 * 1024, -- bytes; a session of 500 turns with all its ids has 5 MB
  BYTES_MAX = 4 * 2 ^ 30,      -- of one file, unpacked: rows are held, and a pipe may never end
}
local CHUNK = 64 * 1024

---@class kvr.Source
---@field path string the file being read
---@field number integer its last line read, from 1
local Source = {}
Source.__index = Source

local function quoted(path) return "'" .. path:gsub("'", "'\\''") .. "'" end

-- gzip's failure is not seen through a pipe: a last byte of our own says that it went well.
local function open_gzip(path)
  return assert(io.popen("gzip -dc < " .. quoted(path) .. " 2>/dev/null && printf '\\0'"))
end

---@param paths string|string[] "-" is standard input; names that end in .gz are unpacked
---@return kvr.Source
function M.open(paths)
  if type(paths) == "string" then paths = { paths } end
  if #paths == 0 then error("no file to read", 0) end
  return setmetatable({ paths = paths, next_path = 1, path = paths[1], number = 0 }, Source)
end

---Ends with an error about the current line. `field` may be nil.
function Source:fail(field, what, ...)
  local text = select("#", ...) > 0 and what:format(...) or what
  error(("%s:%d: %s%s"):format(self.path, self.number, field and field .. ": " or "", text), 0)
end

local function open_next(self)
  local path = self.paths[self.next_path]
  if not path then return false end
  self.next_path = self.next_path + 1
  self.path, self.number, self.text, self.at, self.bytes = path, 0, "", 1, 0
  self.gzip = path:sub(-3) == ".gz"
  if path == "-" then
    self.file = io.stdin
    return true
  end
  local mode = self.gzip and lfs.attributes(path, "mode") -- gzip opens it anew
  if mode and mode ~= "file" then error(path .. ": is no regular file", 0) end
  local file, why = given.open(path)
  if not file then error(why, 0) end
  if self.gzip then
    file:close()
    file = open_gzip(path)
  end
  self.file = file
  return true
end

-- The end of a file: what stands behind its last line feed, or nil.
local function close(self, rest)
  if self.file ~= io.stdin then self.file:close() end
  self.file, self.text = nil, ""
  if self.gzip then
    if rest:sub(-1) ~= "\0" then error(self.path .. ": is no whole gzip file", 0) end
    rest = rest:sub(1, -2)
  end
  return rest ~= "" and rest or nil
end

local function next_chunk(self)
  local chunk, why = self.file:read(CHUNK)
  if why then error(self.path .. ": " .. why, 0) end
  self.bytes = self.bytes + (chunk and #chunk or 0)
  if self.bytes > M.BYTES_MAX then
    error(("%s: is over %.0f bytes"):format(self.path, M.BYTES_MAX), 0)
  end
  return chunk
end

-- A line that goes over many chunks is put together once.
local function raw_line(self)
  local parts, bytes = {}, 0
  while true do
    local feed = self.text:find("\n", self.at, true)
    parts[#parts + 1] = self.text:sub(self.at, feed and feed - 1)
    if feed then
      self.at = feed + 1
      return table.concat(parts)
    end
    bytes = bytes + #parts[#parts]
    if bytes > M.LINE_MAX then
      self.number = self.number + 1
      self:fail(nil, "a line of more than %d bytes", M.LINE_MAX)
    end
    self.text, self.at = next_chunk(self), 1
    if not self.text then return close(self, table.concat(parts)) end
  end
end

---The next line that is not blank, or nil behind the last one of the last file.
---@return string?
function Source:line()
  while self.file or open_next(self) do
    local line = raw_line(self)
    if line then
      self.number = self.number + 1
      if self.number == 1 then line = line:gsub("^\239\187\191", "") end
      if line:find("%S") then return (line:gsub("\r$", "")) end
    end
  end
end

---The next line as a JSON object.
---@return table?
function Source:object()
  local line = self:line()
  if not line then return nil end
  local ok, object = pcall(cjson.decode, line)
  if not ok then self:fail(nil, "%s", (object:gsub(" at character ", ", character "))) end
  if type(object) ~= "table" or object[1] ~= nil then self:fail(nil, "is no JSON object") end
  return object
end

---The next line as cells between commas. The first line of each file must be `header`.
---@param header string
---@return string[]?
function Source:cells(header)
  local line = self:line()
  if line and self.number == 1 then
    if line ~= header then self:fail(nil, "expected the header %s", header) end
    line = self:line()
  end
  if not line then return nil end
  local cells, want = {}, select(2, header:gsub(",", "")) + 1
  for cell in (line .. ","):gmatch("([^,]*),") do cells[#cells + 1] = cell end
  if #cells ~= want then self:fail(nil, "%d cells, not %d", #cells, want) end
  return cells
end

local function shown(value)
  if value == nil then return "is missing" end
  if value == cjson.null then return "is null" end
  if type(value) == "table" then return "is a list or an object" end
  return "is " .. (type(value) == "string" and ("%q"):format(value:sub(1, 40)) or tostring(value))
end

---A number of at least `low` and at most `high`. `name` is what an error calls it.
function Source:number_of(value, name, low, high)
  if type(value) ~= "number" or value ~= value then
    self:fail(name, "%s; a number is needed", shown(value))
  end
  if value < low or value > (high or math.huge) or value == math.huge then
    self:fail(name, "is %.16g; allowed: %.16g to %.16g", value, low, high or math.huge)
  end
  return value
end

---The same, without a fraction.
function Source:whole(value, name, low, high)
  self:number_of(value, name, low, high or 2 ^ 53)
  if value % 1 ~= 0 then self:fail(name, "is %.16g; a whole number is needed", value) end
  return value
end

---A whole number in a cell of text.
function Source:whole_cell(text, name, low, high)
  if not text:find("^%-?%d+$") then self:fail(name, "%s; a whole number is needed", shown(text)) end
  return self:whole(tonumber(text), name, low, high)
end

---Any number in a cell of text.
function Source:number_cell(text, name, low, high)
  local value = text:find("^%-?[%d.]") and not text:find("[xX]") and tonumber(text) or nil
  if not value then self:fail(name, "%s; a number is needed", shown(text)) end
  return self:number_of(value, name, low, high)
end

function Source:text_of(value, name)
  if type(value) ~= "string" then self:fail(name, "%s; a text is needed", shown(value)) end
  return value
end

function Source:list_of(value, name)
  if type(value) ~= "table" or (value[1] == nil and next(value) ~= nil) then
    self:fail(name, "%s; a list is needed", shown(value))
  end
  return value
end

return M
