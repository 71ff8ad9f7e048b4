-- What the library refuses names the user's own line. The level of error() does not find it: of
-- `return lab.experiment { ... }`, a tail call, no frame is left. So the library raises texts
-- without a place, and where the user's code was called from, it is put before them.
local given = require("kvroute.given")

local M = {}

local MOST = 16 * 2 ^ 20 -- bytes of a file

---@param why any
---@param place string "file:line"
---@return any # with the place, unless it has one or is no text
function M.at(why, place)
  if type(why) ~= "string" or why:find("^[^\n]-:%d+: ") then return why end
  return ("%s: %s"):format(place, why)
end

---Runs a whole file. What is raised in it names the last of its lines that ran.
---@param path string
---@return any result
---@return integer? line the last
function M.run(path)
  local chunk, why = given.load(path, MOST)
  if not chunk then error(why, 0) end
  local line
  local source = debug.getinfo(chunk, "S").source
  debug.sethook(function(_, at)
    if debug.getinfo(2, "S").source == source then line = at end
  end, "l")
  local ok, result = pcall(chunk)
  debug.sethook()
  if not ok then error(line and M.at(result, ("%s:%d"):format(path, line)) or result, 0) end
  return result, line
end

---Calls a function of the user's. What is raised in it names the line where it begins.
---@param f function
function M.call(f, ...)
  local ok, result = pcall(f, ...)
  if ok then return result end
  local where = debug.getinfo(f, "S")
  error(M.at(result, ("%s:%d"):format(where.source:sub(2), where.linedefined)), 0)
end

return M
