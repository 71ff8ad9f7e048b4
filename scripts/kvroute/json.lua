-- JSON with one spelling for a value: keys sorted, numbers in the fewest digits that read back. So
-- equal values are equal bytes, which addresses of cells and committed results rest on.
local cjson = require("cjson")

local M = { null = cjson.null, decode = cjson.decode }

-- Marks a table as a list even when it is empty.
local list = { __jsontype = "list" }

---@generic T
---@param items T[]
---@return T[]
function M.list(items)
  return setmetatable(items, list)
end

local function number(value)
  if value ~= value or value == math.huge or value == -math.huge then return "null" end
  if value % 1 == 0 and math.abs(value) < 2 ^ 53 then return ("%.0f"):format(value) end
  for digits = 15, 17 do
    local text = ("%." .. digits .. "g"):format(value)
    if tonumber(text) == value then return text end
  end
end

local escapes = { ['"'] = '\\"', ["\\"] = "\\\\", ["\n"] = "\\n", ["\r"] = "\\r", ["\t"] = "\\t" }

local function text_of(value)
  return '"' .. value:gsub('[%c"\\\127]', function(c)
    return escapes[c] or ("\\u%04x"):format(c:byte())
  end) .. '"'
end

local encode

-- Plain items stand in one line.
local function is_plain(value)
  for _, item in ipairs(value) do
    if type(item) == "table" then return false end
  end
  return true
end

local function encode_list(value, out, indent)
  if indent and is_plain(value) then indent = nil end
  local inner = indent and indent .. "  "
  for key in pairs(value) do
    if type(key) ~= "number" then
      error("a list with the key " .. tostring(key) .. " is neither a list nor an object", 0)
    end
  end
  out[#out + 1] = "["
  for i, item in ipairs(value) do
    if i > 1 then out[#out + 1] = "," end
    if inner then out[#out + 1] = "\n" .. inner end
    encode(item, out, inner)
  end
  if indent and #value > 0 then out[#out + 1] = "\n" .. indent end
  out[#out + 1] = "]"
end

local function encode_object(value, out, indent)
  local inner = indent and indent .. "  "
  local keys = {}
  for key in pairs(value) do
    if type(key) ~= "string" then
      error("a table with the key " .. tostring(key) .. " is neither a list nor an object", 0)
    end
    keys[#keys + 1] = key
  end
  table.sort(keys)
  out[#out + 1] = "{"
  for i, key in ipairs(keys) do
    if i > 1 then out[#out + 1] = "," end
    if inner then out[#out + 1] = "\n" .. inner end
    out[#out + 1] = text_of(key) .. (inner and ": " or ":")
    encode(value[key], out, inner)
  end
  if indent and #keys > 0 then out[#out + 1] = "\n" .. indent end
  out[#out + 1] = "}"
end

function encode(value, out, indent)
  local kind = type(value)
  if value == nil or value == cjson.null then
    out[#out + 1] = "null"
  elseif kind == "number" then
    out[#out + 1] = number(value)
  elseif kind == "boolean" then
    out[#out + 1] = tostring(value)
  elseif kind == "string" then
    out[#out + 1] = text_of(value)
  elseif kind ~= "table" then
    error("a " .. kind .. " is not data", 0)
  elseif getmetatable(value) == list or value[1] ~= nil then
    encode_list(value, out, indent)
  else
    encode_object(value, out, indent)
  end
end

---Numbers that are none (NaN, infinities) become null.
---@param value any
---@param pretty boolean? over several lines, for files that people and diffs read
---@return string
function M.encode(value, pretty)
  local out = {}
  encode(value, out, pretty and "" or nil)
  return table.concat(out)
end

return M
