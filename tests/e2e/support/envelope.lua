-- The files of tests/data/requests: a JSON envelope whose `body` is to be sent compactly with its
-- keys in their order and its numbers as written. A decoder keeps neither, so the text is taken as
-- it stands, without the blanks between its tokens.
local cjson = require("cjson")
local dirent = require("posix.dirent")

local M = {}

M.folder = "tests/data/requests/"

-- The end of the JSON value that begins at `from`: of its text, strings skipped.
local function value_end(text, from)
  local depth, at = 0, from
  while true do
    local found, _, what = text:find('(["%[%]{},])', at)
    if not found then return #text end
    if what == '"' then
      at = found + 1
      while true do -- to the closing quote
        local quote = assert(text:find('["\\]', at), "a string without an end")
        at = quote + (text:sub(quote, quote) == "\\" and 2 or 1)
        if text:sub(quote, quote) == '"' then break end
      end
      if depth == 0 then return at - 1 end
    elseif what == "[" or what == "{" then
      depth, at = depth + 1, found + 1
    else
      if depth == 0 then return found - 1 end -- a number or a literal ends here
      if what ~= "," then depth = depth - 1 end
      at = found + 1
      if depth == 0 and what ~= "," then return found end
    end
  end
end

---The text without blanks outside of strings.
function M.compact(text)
  local out, at = {}, 1
  while at <= #text do
    if text:sub(at, at) == '"' then
      local last = value_end(text, at)
      out[#out + 1] = text:sub(at, last)
      at = last + 1
    else
      local plain = text:match('^[^"]+', at)
      out[#out + 1] = (plain:gsub("%s+", ""))
      at = at + #plain
    end
  end
  return table.concat(out)
end

-- The text of a member of the outermost object.
local function member(text, name)
  local at = assert(text:find("{", 1, true)) + 1
  while true do
    local first, last, key = text:find('^%s*"([^"]*)"%s*:%s*', at)
    if not first then return nil end
    local stop = value_end(text, last + 1)
    if key == name then return text:sub(last + 1, stop) end
    at = text:match("^%s*,?()", stop + 1)
  end
end

local digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

local function decode64(text)
  local out, bits, have = {}, 0, 0
  for char in text:gmatch("[%w+/]") do
    bits, have = bits * 64 + digits:find(char, 1, true) - 1, have + 6
    if have >= 8 then
      have = have - 8
      out[#out + 1] = string.char(math.floor(bits / 2 ^ have))
      bits = bits % 2 ^ have
    end
  end
  return table.concat(out)
end

---@return table envelope as decoded, with `bytes`, its body as it is to be sent
function M.read(name)
  local file = assert(io.open(M.folder .. name .. ".json", "rb"))
  local text = file:read("*a")
  file:close()
  local envelope = cjson.decode(text)
  local body = member(text, "body")
  envelope.bytes = body and M.compact(body) or envelope.body_text or decode64(envelope.body_b64)
  return envelope
end

---Names of all files, in order.
function M.names()
  local names = {}
  for name in dirent.files(M.folder) do
    names[#names + 1] = name:match("^(s.*)%.json$")
  end
  table.sort(names)
  return names
end

return M
