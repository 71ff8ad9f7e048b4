-- A gnuplot script in the making, and its pictures. The same script gives the same bytes: nothing
-- of the day, the settings of the user or the terminal comes in. Texts are shown as they are,
-- underscores and all.
local store = require("kvroute.store")

local M = {}

local FONT = "DejaVu Sans,11"
local PNG_SCALE = 1.5

---@class kvr.Plot
---@field width integer
---@field height integer
local Plot = {}
Plot.__index = Plot

---@param width integer
---@param height integer
---@return kvr.Plot
function M.new(width, height)
  return setmetatable({ width = width, height = height, lines = {}, blocks = 0 }, Plot)
end

---@param text any
---@return string # as gnuplot reads it
function M.quote(text)
  return "'" .. tostring(text):gsub("'", "''") .. "'"
end

---@return string # digits that are enough for a picture; "NaN" leaves a gap
function M.number(value)
  if value == nil or value ~= value or math.abs(value) == math.huge then return "NaN" end
  return ("%.7g"):format(value)
end

---@param format string
function Plot:add(format, ...)
  self.lines[#self.lines + 1] = select("#", ...) > 0 and format:format(...) or format
end

---Rows of numbers; false breaks a line.
---@param rows (number[]|false)[]
---@return string # the name to plot
function Plot:data(rows)
  self.blocks = self.blocks + 1
  local name, out = "$d" .. self.blocks, {}
  for i, row in ipairs(rows) do
    local parts = {}
    for j = 1, row and #row or 0 do parts[j] = M.number(row[j]) end
    out[i] = table.concat(parts, " ")
  end
  self:add("%s", ("%s << EOD\n%s\nEOD"):format(name, table.concat(out, "\n")))
  return name
end

local function picture(self, terminal, path)
  local script = ("%s.%d.gp"):format(path, self.width)
  local temporary = path .. ".tmp"
  store.write_file(script, ("%s\nset output %s\n%s\nunset output\n"):format(terminal,
    M.quote(temporary), table.concat(self.lines, "\n")))
  local quoted = "'" .. script:gsub("'", "'\\''") .. "'"
  local pipe = io.popen("gnuplot -d " .. quoted .. " 2>&1; echo $?", "r")
  local said = pipe:read("*a")
  pipe:close()
  local rest, status = said:match("^(.-)(%d+)%s*$")
  os.remove(script)
  if status ~= "0" or rest:find("%S") then
    os.remove(temporary)
    error(("gnuplot on %s: %s"):format(path, rest and rest:gsub("%s+$", "") or said), 0)
  end
  assert(os.rename(temporary, path))
end

---Writes BASE.svg and BASE.png.
---@param base string
function Plot:write(base)
  picture(self, ("set terminal svg noenhanced size %d,%d font %s background 'white' name 'kvroute'")
    :format(self.width, self.height, M.quote(FONT)), base .. ".svg")
  picture(self, ("set terminal pngcairo noenhanced size %d,%d font %s fontscale %g linewidth %g "
    .. "pointscale %g background 'white'"):format(self.width * PNG_SCALE, self.height * PNG_SCALE,
    M.quote(FONT), PNG_SCALE, PNG_SCALE, PNG_SCALE), base .. ".png")
end

return M
