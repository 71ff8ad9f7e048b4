-- Finished cells, a file each, named by the address of the cell: DIR/ab/abcdef....json. They
-- appear whole or not at all, so runs may be killed, and several may share one folder.
local lfs = require("lfs")
local unistd = require("posix.unistd")
local json = require("kvroute.json")

---@class kvr.Store
---@field folder string
local Store = {}
Store.__index = Store

local M = {}

local function make_folder(path)
  local at = path:sub(1, 1) == "/" and "/" or ""
  for part in path:gmatch("[^/]+") do
    at = at .. part
    if not lfs.attributes(at, "mode") then
      local ok, why = lfs.mkdir(at)
      -- Another process may have been quicker.
      if not ok and lfs.attributes(at, "mode") ~= "directory" then
        error(("cannot make the folder %s: %s"):format(at, why), 0)
      end
    end
    at = at .. "/"
  end
end

---@param folder string is made when it is first written to
---@return kvr.Store
function M.open(folder)
  return setmetatable({ folder = folder }, Store)
end

---@return string? # nil: there is no such file
function M.read_file(path)
  local file = io.open(path, "rb")
  if not file then return nil end
  local text = file:read("*a")
  file:close()
  return text
end

-- A file that is the old one, or none, until it is kept. Each process writes one of its own.
---@class kvr.Draft
---@field path string
local Draft = {}
Draft.__index = Draft

---@param path string
---@return kvr.Draft
function M.draft(path)
  local new = ("%s.%d.tmp"):format(path, unistd.getpid())
  local file, why = io.open(new, "wb")
  if not file then error("cannot write " .. why, 0) end
  return setmetatable({ path = path, new = new, file = file }, Draft)
end

---Lets go of what was written.
function Draft:drop()
  if io.type(self.file) == "file" then self.file:close() end
  os.remove(self.new)
end

local function give_up(self, why)
  self:drop()
  error(("cannot write %s: %s"):format(self.path, why), 0)
end

---Raises what is wrong, as `keep` does; a file of Lua's would return it.
---@param text string
---@return boolean
function Draft:write(text)
  local ok, why = self.file:write(text)
  if not ok then give_up(self, why) end
  return true
end

function Draft:keep()
  local ok, why = self.file:close()
  if ok then ok, why = os.rename(self.new, self.path) end
  if not ok then give_up(self, why) end
end

---A file that is either the old one or the new one, whatever happens.
---@param path string
---@param text string
function M.write_file(path, text)
  make_folder(path:match("^(.*)/[^/]*$") or ".")
  local draft = M.draft(path)
  draft:write(text)
  draft:keep()
end

---@param key string
---@param what "json"|"rows.jsonl"|nil json
---@return string
function Store:path(key, what)
  return ("%s/%s/%s.%s"):format(self.folder, key:sub(1, 2), key, what or "json")
end

---Makes the folder that a file of this cell goes to.
---@param key string
function Store:prepare(key)
  make_folder(self.folder .. "/" .. key:sub(1, 2))
end

---@param key string
---@return table? # nil: this cell has not been run
function Store:read(key)
  local text = M.read_file(self:path(key))
  if not text then return nil end
  local ok, record = pcall(json.decode, text)
  if not ok or type(record) ~= "table" or record.key ~= key then return nil end
  return type(record.result) == "table" and type(record.cell) == "table" and record or nil
end

---@param record table with its `key`
function Store:write(record)
  M.write_file(self:path(record.key), json.encode(record) .. "\n")
end

---@param key string
---@return boolean
function Store:has_rows(key)
  return lfs.attributes(self:path(key, "rows.jsonl"), "mode") == "file"
end

---Keeps a script's text under its hash, so that what a result names can be read again.
function Store:keep_script(hash, text)
  local path = ("%s/scripts/%s.lua"):format(self.folder, hash)
  if not lfs.attributes(path, "mode") then M.write_file(path, text) end
end

return M
