-- What else is to be known of a cell than the summary: a file that sees every request's record
-- once, as a struct kvr_sim_record, and keeps no table a record.
--
--   return function(cell)                        -- the cell as data
--     local late = 0
--     return function(record) if record.ttft_ms > 990 then late = late + 1 end end,
--       function() return { late = late } end    -- called at the end: plain data
--   end
local ffi = require("kvroute.ffi")
local given = require("kvroute.given")
local watch = require("kvroute.watch")

local M = {}

local MOST = 2 ^ 20 -- bytes of a file

---@class kvr.Collector
---@field name string
---@field hash string
---@field text string

---@param path string
---@return kvr.Collector
function M.read(path)
  local text, missing = given.read(path, MOST)
  watch.add(path, text)
  if not text then error("there is no collector: " .. missing, 0) end
  local chunk, why = loadstring(text, "@" .. path)
  if not chunk then error(why, 0) end
  return { name = path:match("([^/]*)%.lua$") or path, hash = ffi.hash64(text), text = text }
end

---@param choices {name: string, hash: string}[]
---@param texts table<string, string>
---@param cell table
---@return fun(record: ffi.cdata*)[] see
---@return fun(): table<string, any> finish
function M.start(choices, texts, cell)
  local see, finish = {}, {}
  for i, choice in ipairs(choices) do
    local make = assert(loadstring(texts[choice.hash], "@" .. choice.name .. ".lua"))()
    see[i], finish[i] = make(cell)
  end
  return see, function()
    local out = {}
    for i, choice in ipairs(choices) do out[choice.name] = finish[i]() end
    return out
  end
end

return M
