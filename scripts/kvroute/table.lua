-- Tables of text that fit 100 columns, and the same as CSV. A cell is a string or a number; all
-- columns but the first, which names the rows, stand to the right.
local M = { WIDTH = 100 }

---@class kvr.Table
---@field title string?
---@field head string[] names of columns; "\n" breaks a name over lines
---@field rows (string|number|false)[][] false: nothing is known, shown as a dash
---@field notes string[]? lines below

local DASH = "-"

local function shown(value)
  if value == nil or value == false or value ~= value then return DASH end
  return tostring(value)
end

---Characters, not bytes: names may have an umlaut.
local function width_of(text)
  return select(2, text:gsub("[^\128-\191]", ""))
end

local function lines_of(text)
  local out = {}
  for line in (text .. "\n"):gmatch("(.-)\n") do out[#out + 1] = line end
  return out
end

local function pad(text, width, right)
  local space = (" "):rep(width - width_of(text))
  return right and space .. text or text .. space
end

local function columns_of(t)
  local columns = {}
  for i, name in ipairs(t.head) do
    local column = { lines = lines_of(name), width = 0, right = i > 1, at = i }
    for _, line in ipairs(column.lines) do column.width = math.max(column.width, width_of(line)) end
    for _, row in ipairs(t.rows) do
      column.width = math.max(column.width, width_of(shown(row[i])))
    end
    columns[i] = column
  end
  return columns
end

-- Groups of columns that fit the width, each with the first column, which names the rows.
local function pages_of(columns, width)
  local pages, page, used = {}, nil, 0
  for i = 2, #columns do
    local need = columns[i].width + 2
    if not page or used + need > width then
      page, used = { columns[1] }, columns[1].width
      pages[#pages + 1] = page
    end
    page[#page + 1] = columns[i]
    used = used + need
  end
  return #pages > 0 and pages or { columns }
end

local function write_line(out, page, text_in)
  local parts = {}
  for i, column in ipairs(page) do parts[i] = pad(text_in(column), column.width, column.right) end
  out[#out + 1] = (table.concat(parts, "  "):gsub(" +$", ""))
end

local function write_page(out, page, rows)
  local height = 0
  for _, column in ipairs(page) do height = math.max(height, #column.lines) end
  for line = 1, height do
    write_line(out, page, function(column)
      return column.lines[line - height + #column.lines] or ""
    end)
  end
  local rule = {}
  for i, column in ipairs(page) do rule[i] = ("-"):rep(column.width) end
  out[#out + 1] = table.concat(rule, "  ")
  for _, row in ipairs(rows) do
    write_line(out, page, function(column) return shown(row[column.at]) end)
  end
end

---@param t kvr.Table
---@param width integer? 100
---@return string # ends with a line feed
function M.text(t, width)
  local out = {}
  if t.title then
    out[#out + 1] = t.title
    out[#out + 1] = ""
  end
  for i, page in ipairs(pages_of(columns_of(t), width or M.WIDTH)) do
    if i > 1 then out[#out + 1] = "" end
    write_page(out, page, t.rows)
  end
  for i, note in ipairs(t.notes or {}) do
    if i == 1 then out[#out + 1] = "" end
    out[#out + 1] = note
  end
  return table.concat(out, "\n") .. "\n"
end

local function field(value)
  if value == nil or value == false or value ~= value then return "" end
  local text = type(value) == "number" and ("%.15g"):format(value) or tostring(value)
  return text:find('[",\r\n]') and '"' .. text:gsub('"', '""') .. '"' or text
end

---RFC 4180, but for plain line feeds; what is not known is empty.
---@param head string[]
---@param rows any[][]
---@return string
function M.csv(head, rows)
  local out = {}
  for i = 0, #rows do
    local parts = {}
    for j = 1, #head do parts[j] = field((i == 0 and head or rows[i])[j]) end
    out[#out + 1] = table.concat(parts, ",")
  end
  return table.concat(out, "\n") .. "\n"
end

return M
