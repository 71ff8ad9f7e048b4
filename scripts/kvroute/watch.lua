-- The files that an experiment was made from, with what was in them, and the wait until one of them
-- is saved with something else. Looks at texts, not at times: an editor that replaces the file or
-- writes it twice is no trouble.
local lfs = require("lfs")
local time = require("posix.time")
local store = require("kvroute.store")

local M = {}

local LOOK_NS = 2e8

local texts = {} ---@type table<string, string|false> by path; false: there was none
local paths = {} ---@type string[]

-- A pipe is read by whom it is meant for, once, and never saved.
local function look(path)
  return lfs.attributes(path, "mode") == "file" and store.read_file(path) or nil
end

---@param path string
---@param text string? what was read
function M.add(path, text)
  if texts[path] == nil then paths[#paths + 1] = path end
  texts[path] = text or look(path) or false
end

---Before everything is read anew.
function M.forget()
  texts, paths = {}, {}
end

---@return string[]
function M.paths() return paths end

---@return string? # one that has been saved since it was read
function M.changed()
  for _, path in ipairs(paths) do
    local text = look(path)
    -- A file that is being replaced is away for a moment.
    if text and text ~= "" and text ~= texts[path] then return path end
  end
end

---@return string # the one that has been saved
function M.wait()
  while true do
    local path = M.changed()
    if path then return path end
    time.nanosleep({ tv_sec = 0, tv_nsec = LOOK_NS })
  end
end

return M
