-- Figures that a person can read: axes with units, a policy in its own colour in all of them,
-- ranges drawn, and what lies within the spread grey. BASE.svg and BASE.png; the same data gives
-- the same bytes.
--
--   figure.lines("out/load", { title = "...", x = { label = "users", log2 = true },
--     y = { label = "goodput (requests/s)" }, series = { { name = "round_robin",
--     points = { { x = 1, y = 0.6, low = 0.5, high = 0.7 }, ... } } } })
--   figure.bars("out/spill", { title = ..., y = ..., groups = { "0", "1" }, series = { {
--     name = ..., values = { { y = 1, low = 1, high = 2 }, false } } } })   a value a group
--   figure.heat("out/map", { title = ..., x = { label = ..., values = { ... } }, y = ...,
--     cells = { { x = 1, y = 1, value = 38, text = "+38 %", grey = false }, ... } })
--
-- What they show comes from results by figure_data.lua.
local gnuplot = require("kvroute.gnuplot")
local json = require("kvroute.json")
local palette = require("kvroute.palette")
local schema = require("kvroute.schema")
local store = require("kvroute.store")

local M = {}

local GREY = "#d9d9d9"
local quote, number = gnuplot.quote, gnuplot.number

---@class kvr.FigureAxis
---@field label string with the unit
---@field log2 boolean?
---@field min number?
---@field max number?
---@field values any[]? of a heat grid, in order

---@class kvr.FigurePoint
---@field x number
---@field y number? nil: a gap
---@field low number?
---@field high number?
---@field marked boolean? a ring around it: something speaks against it

---@class kvr.FigureSeries
---@field name string a policy's label: it gives the colour
---@field label string? in the key; the name
---@field points kvr.FigurePoint[]? of lines
---@field values (kvr.FigurePoint|false)[]? of bars
---@field step boolean? each point holds until the next
---@field dots boolean? no line between points
---@field dashed boolean?

---@class kvr.FigurePanel
---@field title string?
---@field x kvr.FigureAxis
---@field y kvr.FigureAxis
---@field series kvr.FigureSeries[]
---@field lines {x: number?, y: number?, label: string, dotted: boolean?}[]? across the panel

local function range(axis)
  return ("[%s:%s]"):format(axis.min and number(axis.min) or "*", axis.max and number(axis.max)
    or "*")
end

-- Room above the highest point, where the axis says nothing else.
local function with_headroom(panel)
  if panel.y.max then return panel.y end
  local most = -math.huge
  for _, series in ipairs(panel.series) do
    for _, point in ipairs(series.points or series.values) do
      if point and point.y then most = math.max(most, point.high or point.y) end
    end
  end
  if most <= 0 then return panel.y end
  return { label = panel.y.label, min = panel.y.min, max = most * 1.08 }
end

local function frame(plot)
  plot:add("set border 3 lw 1 lc rgb '#555555'\nset tics nomirror textcolor rgb '#333333'")
  plot:add("set format '%g'")
  plot:add("set grid ytics lc rgb '#e5e5e5' lw 1 dt 1")
end

local function axes(plot, panel)
  plot:add("set xlabel %s\nset ylabel %s", quote(panel.x.label), quote(panel.y.label))
  plot:add("unset logscale\nset xtics autofreq")
  if panel.x.log2 then plot:add("set logscale x 2") end
  if panel.x.ticks then
    local parts = {}
    for i, tick in ipairs(panel.x.ticks) do parts[i] = number(tick) end
    plot:add("set xtics (%s)", table.concat(parts, ", "))
  end
  plot:add("set xrange %s\nset yrange %s", range(panel.x), range(with_headroom(panel)))
  plot:add(panel.title and "set title %s font ',11'" or "unset title",
    panel.title and quote(panel.title))
end

local function across(plot, panel)
  plot:add("unset arrow\nunset label")
  for _, line in ipairs(panel.lines or {}) do
    local from = line.x and ("%s, graph 0"):format(number(line.x)) or "graph 0, first "
      .. number(line.y)
    local to = line.x and ("%s, graph 1"):format(number(line.x)) or "graph 1, first "
      .. number(line.y)
    plot:add("set arrow from %s to %s nohead back lc rgb '#777777' lw 1 dt %s", from, to,
      line.dotted and "3" or "1")
    plot:add("set label %s at %s font ',9' tc rgb '#555555' front", quote(line.label), line.x
      and ("%s, graph 0.98 rotate by 90 right offset 0.8,0"):format(number(line.x))
      or ("graph 0.99, first %s right offset 0,0.5"):format(number(line.y)))
  end
end

local function has_range(series)
  for _, point in ipairs(series.points) do
    if point.low and point.high and point.low < point.high then return true end
  end
  return false
end

local function rows_of(series)
  local rows, marked = {}, {}
  for i, point in ipairs(series.points) do
    rows[#rows + 1] = point.y and { point.x, point.y, point.low or point.y, point.high or point.y }
      or false
    if series.step and point.y then
      local following = series.points[i + 1]
      local x = following and following.x or point.x + (series.step_width or 0)
      rows[#rows + 1] = { x, point.y, point.y, point.y }
    end
    if point.marked and point.y then marked[#marked + 1] = { point.x, point.y } end
  end
  return rows, marked
end

-- The parts of a plot command for one series: its band, its line, its rings.
local function draw(plot, series, with_key)
  local colour = series.colour or palette.colour(series.name)
  local rows, marked = rows_of(series)
  local data, out = plot:data(rows), {}
  if has_range(series) and not series.dots then
    out[1] = ("%s using 1:3:4 with filledcurves fc rgb '%s' fs transparent solid 0.15 noborder "
      .. "notitle"):format(data, colour)
  end
  local style = series.dots and "points pt 7 ps 0.7" or series.step and "lines lw 2"
    or "linespoints lw 2 pt 7 ps 0.6"
  out[#out + 1] = ("%s using 1:2 with %s lc rgb '%s' dt %d %s"):format(data, style, colour,
    series.dashed and 2 or 1, with_key and "title " .. quote(series.label or series.name)
    or "notitle")
  if #marked > 0 then
    out[#out + 1] = ("%s using 1:2 with points pt 6 ps 1.6 lw 1.5 lc rgb '%s' notitle"):format(
      plot:data(marked), colour)
  end
  return table.concat(out, ", ")
end

-- Panels share one key, so each series is in it once.
local function key_series(panels)
  local out, known = {}, {}
  for _, panel in ipairs(panels) do
    for _, series in ipairs(panel.series) do
      local label = series.label or series.name
      if not known[label] then out[#out + 1] = series end
      known[label] = true
    end
  end
  return out
end

-- The key is a column of its own at the right, as wide as its longest text.
local function key_width(labels)
  local longest = 0
  for _, label in ipairs(labels) do longest = math.max(longest, #label) end
  return math.min(46 + longest * 7, 320)
end

local function write_key(plot, list, left, kind)
  local top, step = plot.height - 70, 19
  for i, series in ipairs(list) do
    local y = (top - (i - 1) * step) / plot.height
    local colour = series.colour or palette.colour(series.name)
    local x = left / plot.width
    if kind == "bars" then
      plot:add("set object rectangle from screen %s, screen %s to screen %s, screen %s "
        .. "fc rgb '%s' fs solid noborder front", number(x), number(y - 5 / plot.height),
        number(x + 16 / plot.width), number(y + 5 / plot.height), colour)
    else
      plot:add("set arrow from screen %s, screen %s to screen %s, screen %s nohead lw 2.5 "
        .. "lc rgb '%s' dt %d front", number(x), number(y), number(x + 20 / plot.width), number(y),
        colour, series.dashed and 2 or 1)
    end
    plot:add("set label %s at screen %s, screen %s left font ',10' front",
      quote(series.label or series.name), number(x + 26 / plot.width), number(y))
  end
end

local function labels_of(list)
  local out = {}
  for i, series in ipairs(list) do out[i] = series.label or series.name end
  return out
end

-- Where panel i of n stands, in parts of the picture; `left` and `top` are for labels.
local function place(plot, i, n, room)
  local each = (plot.width - room.key) / n
  plot:add("set lmargin at screen %s\nset rmargin at screen %s",
    number(((i - 1) * each + (room.left or 66)) / plot.width),
    number((i * each - 16) / plot.width))
  plot:add("set bmargin at screen %s\nset tmargin at screen %s",
    number((62 + plot.foot) / plot.height), number((plot.height - (room.top or 50)) / plot.height))
end

-- A picture with room for the note below.
local function start(figure, width, height)
  local foot = figure.note and 18 or 0
  local plot = gnuplot.new(width, height + foot)
  plot.foot = foot
  return plot
end

local function heading(plot, figure)
  plot:add("set label 1001 %s at screen %s, screen %s left font ',13' front", quote(figure.title),
    number(20 / plot.width), number((plot.height - 22) / plot.height))
  if figure.note then
    plot:add("set label 1002 %s at screen %s, screen %s left font ',9' tc rgb '#666666' front",
      quote(figure.note), number(20 / plot.width), number(14 / plot.height))
  end
end

---Lines over a quantity, with a band from the least to the most of the repetitions, in panels
---beside each other.
---@param base string
---@param figure {title: string, note: string?, panels: kvr.FigurePanel[]?} or the fields of its one
---  panel
function M.lines(base, figure)
  local panels = figure.panels or { { x = figure.x, y = figure.y, series = figure.series,
    lines = figure.lines } }
  local list = key_series(panels)
  local key = key_width(labels_of(list))
  local plot = start(figure, #panels * 460 + key + (#panels == 1 and 160 or 0), 440)
  frame(plot)
  plot:add("set multiplot")
  for i, panel in ipairs(panels) do
    across(plot, panel)
    axes(plot, panel)
    place(plot, i, #panels, { key = key, top = panel.title and 72 })
    if i == #panels then
      heading(plot, figure)
      write_key(plot, list, plot.width - key + 4)
    end
    local parts = {}
    for j, series in ipairs(panel.series) do parts[j] = draw(plot, series) end
    plot:add("unset key\nplot %s", table.concat(parts, ", "))
  end
  plot:add("unset multiplot")
  plot:write(base)
end

-- ---- bars ----

local function bar_rows(series, j, n)
  local width = 0.8 / n
  local rows, rings = {}, {}
  for i, value in ipairs(series.values) do
    if value and value.y then
      local x = i + (j - (n + 1) / 2) * width
      rows[#rows + 1] = { x, value.y, value.low or value.y, value.high or value.y, width * 0.92 }
      if value.marked then rings[#rings + 1] = { x, value.y } end
    end
  end
  return rows, rings
end

local function draw_bars(plot, series, j, n)
  local rows, rings = bar_rows(series, j, n)
  if #rows == 0 then return nil end
  local data = plot:data(rows)
  local out = { ("%s using 1:2:5 with boxes fc rgb '%s' fs solid 1 noborder notitle"):format(data,
    series.colour or palette.colour(series.name)) }
  out[2] = ("%s using 1:3:(0):($4-$3) with vectors nohead lw 1.2 lc rgb '#333333' notitle"):format(
    data)
  if #rings > 0 then
    out[3] = ("%s using 1:2 with points pt 6 ps 1.3 lc rgb '#333333' notitle"):format(
      plot:data(rings))
  end
  return table.concat(out, ", ")
end

---Bars in groups, with their ranges.
---@param base string
---@param figure {title: string, note: string?, x: kvr.FigureAxis, y: kvr.FigureAxis,
---  groups: string[], series: kvr.FigureSeries[], lines: table[]?}
function M.bars(base, figure)
  local key = key_width(labels_of(figure.series))
  local bars = #figure.groups * (#figure.series + 1)
  local plot = start(figure, math.min(math.max(420, bars * 14 + 120), 1100) + key, 440)
  frame(plot)
  across(plot, figure)
  axes(plot, {
    x = { label = figure.x and figure.x.label or "", min = 0.4, max = #figure.groups + 0.6 },
    y = { label = figure.y.label, min = figure.y.min or 0, max = figure.y.max },
    series = figure.series,
  })
  local ticks = {}
  for i, group in ipairs(figure.groups) do ticks[i] = ("%s %d"):format(quote(group), i) end
  plot:add("set xtics (%s) scale 0", table.concat(ticks, ", "))
  place(plot, 1, 1, { key = key })
  heading(plot, figure)
  write_key(plot, figure.series, plot.width - key + 4, "bars")
  local parts = {}
  for j, series in ipairs(figure.series) do
    parts[#parts + 1] = draw_bars(plot, series, j, #figure.series)
  end
  plot:add("unset key\nplot %s", table.concat(parts, ", "))
  plot:write(base)
end

-- ---- heat grids ----

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
function M.heat(base, figure)
  local most, names, known = figure.most or 0, {}, {}
  for _, cell in ipairs(figure.cells) do
    if not figure.most and cell.value then most = math.max(most, math.abs(cell.value)) end
    if cell.name and not known[cell.name] then
      known[cell.name] = true
      names[#names + 1] = { name = cell.name }
    end
  end
  table.sort(names, function(a, b) return palette.before(a.name, b.name) end)
  local key = #names > 0 and key_width(labels_of(names)) or 16
  local columns, rows = #figure.x.values, #figure.y.values
  local longest = 0
  for _, value in ipairs(figure.y.values) do longest = math.max(longest, #tostring(value)) end
  local left = 52 + longest * 8
  local plot = start(figure, math.max(columns * 150 + left + 24, 420) + key, rows * 78 + 130)
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
  place(plot, 1, 1, { key = key, left = left })
  heading(plot, figure)
  write_key(plot, names, plot.width - key + 4, "bars")
  plot:add("plot NaN notitle")
  plot:write(base)
end

---@class kvr.NamedFigure
---@field kind "lines"|"bars"|"heat"
---@field [string] any the figure itself

---Writes BASE-NAME.svg and .png of each, and what they show as BASE.figures.json.
---@param base string
---@param figures table<string, kvr.NamedFigure>
function M.write_all(base, figures)
  store.write_file(base .. ".figures.json", json.encode(figures, true) .. "\n")
  for _, name in ipairs(schema.names(figures)) do
    M[figures[name].kind](base .. "-" .. name, figures[name])
  end
end

return M
