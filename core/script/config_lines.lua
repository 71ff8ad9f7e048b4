-- Where in a configuration file each setting is written, and what in it sets nothing.

-- Tokens of Lua source, enough to find assignments: names, strings, numbers and single symbols,
-- each with its line.
local function tokens(source)
  local list, at, line = {}, 1, 1
  local function skip_to(stop)
    for _ in source:sub(at, stop):gmatch("\n") do line = line + 1 end
    at = stop + 1
  end
  while at <= #source do
    local rest_from = at
    local space = source:match("^%s+()", at)
    local level = source:match("^%-%-%[(=*)%[", at) or source:match("^%[(=*)%[", at)
    local quote = source:match("^[\"']", at)
    if space then
      skip_to(space - 1)
    elseif level then
      local comment = source:sub(at, at) == "-"
      local _, stop = source:find("]" .. level .. "]", at, true)
      if not comment then list[#list + 1] = { kind = "string", text = "", line = line } end
      skip_to(stop or #source)
    elseif source:sub(at, at + 1) == "--" then
      skip_to((source:find("\n", at, true) or #source + 1) - 1)
    elseif quote then
      local stop = at + 1
      while stop <= #source and source:sub(stop, stop) ~= quote do
        stop = stop + (source:sub(stop, stop) == "\\" and 2 or 1)
      end
      list[#list + 1] = { kind = "string", text = source:sub(at + 1, stop - 1), line = line }
      skip_to(math.min(stop, #source))
    else
      local name = source:match("^[%a_][%w_]*", at)
      local number = source:match("^%d[%w.]*", at)
      local text = name or number or source:match("^[=~<>]=", at) or source:sub(at, at)
      list[#list + 1] = {
        kind = name and "name" or number and "number" or "symbol", text = text, line = line,
      }
      at = rest_from + #text
    end
  end
  return list
end

-- The line of the first `return` that is not within a function, and those of locals that are within
-- no block, by name.
local function find_idle(list)
  local openers = { ["function"] = 1, ["do"] = 1, ["if"] = 1, ["repeat"] = 1, ["end"] = -1,
    ["until"] = -1 }
  local depth, functions = 0, {} -- depths at which functions begin
  local returns, locals = nil, {}
  for i, token in ipairs(list) do
    local before = list[i - 1]
    local step = token.kind == "name" and not (before and before.text == ".")
      and openers[token.text] or 0
    if token.text == "function" and step == 1 then functions[#functions + 1] = depth end
    depth = depth + step
    if depth == functions[#functions] then functions[#functions] = nil end
    if token.kind == "name" and token.text == "return" and #functions == 0 then
      returns = returns or token.line
    end
    if token.kind == "name" and token.text == "local" and depth == 0 then
      local at = list[i + 1] and list[i + 1].text == "function" and i + 2 or i + 1
      while list[at] and list[at].kind == "name" do
        locals[list[at].text] = list[at].line
        at = list[at + 1] and list[at + 1].text == "," and at + 2 or #list + 1
      end
    end
  end
  return returns, locals
end

-- Lines of assignments and of entries in table constructors, by dotted path; the last one counts.
-- What is computed in a loop has the line where its setting is first named. Also the line of the
-- last token, and what find_idle tells.
return function(source)
  local list, lines, at = tokens(source), {}, 1
  local openers = { ["("] = 1, ["{"] = 1, ["["] = 1, [")"] = -1, ["}"] = -1, ["]"] = -1 }
  local blocks = { ["function"] = 1, ["do"] = 1, ["if"] = 1, ["end"] = -1 }

  local function is(text, ahead)
    local token = list[at + (ahead or 0)]
    return token and token.kind ~= "string" and token.text == text
  end

  local function skip_value()
    local depth = 0
    while list[at] do
      if depth == 0 and (is(",") or is(";") or is("}")) then return end
      local token = list[at]
      if token.kind == "symbol" then depth = depth + (openers[token.text] or 0) end
      if token.kind == "name" then depth = depth + (blocks[token.text] or 0) end
      at = at + 1
    end
  end

  local function constructor(path)
    local n = 0
    at = at + 1
    while list[at] and not is("}") do
      local key
      if list[at].kind == "name" and is("=", 1) then
        key = list[at].text
      elseif is("[") and list[at + 1] and is("]", 2) and is("=", 3) then
        key = list[at + 1].text
      end
      local line = list[at].line
      if key then
        at = at + (is("[") and 4 or 2)
      else
        n = n + 1
        key = tostring(n)
      end
      lines[path .. "." .. key] = line
      if is("{") then constructor(path .. "." .. key) else skip_value() end
      if is(",") or is(";") then at = at + 1 end
    end
    at = at + 1
  end

  while list[at] do
    local token = list[at]
    local before = list[at - 1]
    at = at + 1
    local plain = not (before and (before.text == "local" or before.text == "."))
    if token.kind == "name" and plain then
      local path = token.text
      local named = lines[path]
      lines[path] = named or token.line
      while (is(".") and list[at + 1]) or (is("[") and is("]", 2)) do
        path = path .. "." .. list[at + 1].text
        at = at + (is(".") and 2 or 3)
        named = lines[path]
      end
      if is("=") then
        for known in pairs(named and lines or {}) do -- of what stood there before
          if known:sub(1, #path + 1) == path .. "." then lines[known] = nil end
        end
        lines[path] = token.line
        at = at + 1
        if is("{") then constructor(path) end
      end
    end
  end
  return lines, list[#list] and list[#list].line, find_idle(list)
end
