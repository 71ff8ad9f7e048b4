-- Heat grids of figure.lua.
local gnuplot = require("kvroute.gnuplot")
local palette = require("kvroute.palette")
local parts = require("kvroute.figure_parts")

local GREY = "#d9d9d9"
local quote, number = gnuplot.quote, gnuplot.number

local scale = { { -1, 0xb3, 0x58, 0x06 }, { 0, 0xf7, 0xf7, 0xf7 }, { 1, 0x35, 0x78, 0xb5 } }

-- Orange below zero, blue above, both apart for every eye; `share` in -1 .. 1.
local function shade(share)
  share = math.max(-1, math.min(1, share))
  local from, to = scale[1], scale[2]
  if share > 0 then from, to = scale[2], scale[3] end
  local part, out = (share - from[1]) / (to[1] - from[1]), {}
  for i = 2, 4 do out[i - 1] = math.floor(from[i] + part * (to[i] - from[i]) + 0.5) end
  return ("#%02x%02x%02x"):format(out[1], out[2], out[3])
end

local function dark(colour)
  local r, g, b = colour:match("#(%x%x)(%x%x)(%x%x)")
  return 0.299 * tonumber(r, 16) + 0.587 * tonumber(g, 16) + 0.114 * tonumber(b, 16) < 140
end

local function write_cell(plot, cell, colour)
  plot:add("set object rectangle from %s, %s to %s, %s fc rgb '%s' fs solid border "
    .. "lc rgb '#ffffff' lw 2", number(cell.x - 0.5), number(cell.y - 0.5), number(cell.x + 0.5),
    number(cell.y + 0.5), colour)
  local ink = dark(colour) and "#ffffff" or "#222222"
  local lines = {}
  for line in ((cell.text or "") .. "\n"):gmatch("(.-)\n") do lines[#lines + 1] = line end
  for i, line in ipairs(lines) do
    plot:add("set label %s at %s, %s center font ',%d' tc rgb '%s' offset 0,%s front", quote(line),
      number(cell.x), number(cell.y), i == 1 and 11 or 9, ink, number((#lines + 1) / 2 - i))
  end
end

-- Room for the longest line in a cell.
local function cell_width(cells)
  local most = 150
  for _, cell in ipairs(cells) do
    local size = 8 -- of a letter; those of further lines are smaller
    for line in ((cell.text or "") .. "\n"):gmatch("(.-)\n") do
      most = math.max(most, #line * size + 16)
      size = 6.6
    end
  end
  return most
end

local function heat_ticks(plot, axis, letter)
  local ticks = {}
  for i, value in ipairs(axis.values) do ticks[i] = ("%s %d"):format(quote(value), i) end
  plot:add("set %stics (%s) scale 0", letter, table.concat(ticks, ", "))
end

---@class kvr.FigureCell
---@field x integer which of the axis's values
---@field y integer
---@field value number? around zero: gives the colour ...
---@field name string? ... or the policy, whose colour it is
---@field text string? the first line is the large one
---@field grey boolean? within the spread

---A grid of coloured cells with their texts.
---@param base string
---@param figure {title: string, note: string?, x: kvr.FigureAxis, y: kvr.FigureAxis,
---  cells: kvr.FigureCell[], most: number?} most: the value of the full colour
return function(base, figure)
  local most, names, known = figure.most or 0, {}, {}
  for _, cell in ipairs(figure.cells) do
    if not figure.most and cell.value then most = math.max(most, math.abs(cell.value)) end
    if cell.name and not known[cell.name] then
      known[cell.name] = true
      names[#names + 1] = { name = cell.name }
    end
  end
  table.sort(names, function(a, b) return palette.before(a.name, b.name) end)
  local key = #names > 0 and parts.key_width(parts.labels_of(names)) or 16
  local columns, rows = #figure.x.values, #figure.y.values
  local longest = 0
  for _, value in ipairs(figure.y.values) do longest = math.max(longest, #tostring(value)) end
  local left = 52 + longest * 8
  local width = math.max(columns * cell_width(figure.cells) + left + 24, 420)
  local plot = parts.start(figure, width + key, rows * 78 + 130)
  plot:add("unset border\nunset grid\nunset key")
  plot:add("set xrange [0.5:%g]\nset yrange [0.5:%g]", columns + 0.5, rows + 0.5)
  plot:add("set xlabel %s\nset label 1003 %s at screen %s, graph 0.5 center rotate by 90 front",
    quote(figure.x.label), quote(figure.y.label), number(18 / plot.width))
  heat_ticks(plot, figure.x, "x")
  heat_ticks(plot, figure.y, "y")
  for _, cell in ipairs(figure.cells) do
    local colour = cell.grey and GREY or cell.name and palette.colour(cell.name)
      or cell.value and shade(most > 0 and cell.value / most or 0) or "#ffffff"
    write_cell(plot, cell, colour)
  end
  parts.place(plot, 1, 1, { key = key, left = left })
  parts.heading(plot, figure)
  parts.write_key(plot, names, plot.width - key + 4, "bars")
  plot:add("plot NaN notitle")
  plot:write(base)
end
