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
--   figure.rows("out/overhead", { title = ..., x = ..., groups = { "p50", "p99" }, series = as of
--     bars })                                            bars that lie, a row a policy
--
-- What they show comes from results by figure_data.lua.
local gnuplot = require("kvroute.gnuplot")
local json = require("kvroute.json")
local palette = require("kvroute.palette")
local parts = require("kvroute.figure_parts")
local schema = require("kvroute.schema")
local store = require("kvroute.store")

local M = { heat = require("kvroute.figure_heat"), rows = require("kvroute.figure_rows") }

local quote = gnuplot.quote

---@class kvr.FigureAxis
---@field label string with the unit
---@field log2 boolean?
---@field min number?
---@field max number?
---@field ticks (number|any[])[]? where; { x, label } calls one by another name
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

local function has_range(series)
  for _, point in ipairs(series.points) do
    if point.low and point.high and point.low < point.high then return true end
  end
  return false
end

local function rows_of(series)
  local rows, marked = {}, {}
  for i, point in ipairs(series.points) do
    local low, high = point.low or point.y, point.high or point.y
    rows[#rows + 1] = point.y and { point.x, point.y, low, high } or false
    if series.step and point.y then
      local following = series.points[i + 1]
      local x = following and following.x or point.x + (series.step_width or 0)
      rows[#rows + 1] = { x, point.y, low, high }
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

---Lines over a quantity, with a band from the least to the most of the repetitions, in panels
---beside each other. Panels without a series are left out.
---@param base string
---@param figure {title: string, note: string?, panels: kvr.FigurePanel[]?} or the fields of its one
---  panel
function M.lines(base, figure)
  local panels = {}
  local only = { x = figure.x, y = figure.y, series = figure.series, lines = figure.lines }
  for _, panel in ipairs(figure.panels or { only }) do
    if #panel.series > 0 then panels[#panels + 1] = panel end
  end
  if #panels == 0 then return end
  local list = key_series(panels)
  local key = parts.key_width(parts.labels_of(list))
  local plot = parts.start(figure, #panels * 476 + key + (#panels == 1 and 160 or 0), 440)
  parts.frame(plot)
  plot:add("set multiplot")
  for i, panel in ipairs(panels) do
    parts.across(plot, panel)
    parts.axes(plot, panel)
    parts.place(plot, i, #panels, { key = key, top = panel.title and 72 })
    if i == #panels then
      parts.heading(plot, figure)
      parts.write_key(plot, list, plot.width - key + 4)
    end
    local commands = {}
    for j, series in ipairs(panel.series) do commands[j] = draw(plot, series) end
    plot:add("unset key\nplot %s", table.concat(commands, ", "))
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
  local key = parts.key_width(parts.labels_of(figure.series))
  local longest = 0
  for _, group in ipairs(figure.groups) do longest = math.max(longest, #group) end
  local group_width = math.max((#figure.series + 1) * 14, longest * 8 + 12)
  local width = math.min(math.max(420, #figure.groups * group_width + 120), 1100)
  local plot = parts.start(figure, width + key, 440)
  parts.frame(plot)
  parts.across(plot, figure)
  parts.axes(plot, {
    x = { label = figure.x and figure.x.label or "", min = 0.4, max = #figure.groups + 0.6 },
    y = { label = figure.y.label, min = figure.y.min or 0, max = figure.y.max },
    series = figure.series,
  })
  local ticks = {}
  for i, group in ipairs(figure.groups) do ticks[i] = ("%s %d"):format(quote(group), i) end
  plot:add("set xtics (%s) scale 0", table.concat(ticks, ", "))
  parts.place(plot, 1, 1, { key = key })
  parts.heading(plot, figure)
  parts.write_key(plot, figure.series, plot.width - key + 4, "bars")
  local commands = {}
  for j, series in ipairs(figure.series) do
    commands[#commands + 1] = draw_bars(plot, series, j, #figure.series)
  end
  plot:add("unset key\nplot %s", table.concat(commands, ", "))
  plot:write(base)
end

---@class kvr.NamedFigure
---@field kind "lines"|"bars"|"rows"|"heat"
---@field [string] any the figure itself

-- What each kind must have, and what makes it.
local needed = {
  lines = { fields = { "title", "panels|series" }, from = "lab.figure.over" },
  bars = { fields = { "title", "y", "groups", "series" }, from = "lab.figure.groups" },
  rows = { fields = { "title", "x", "groups", "series" }, from = "lab.figure.groups" },
  heat = { fields = { "title", "x", "y", "cells" }, from = "lab.figure.against or .winners" },
}

local function check(name, figure)
  local kind = type(figure) == "table" and needed[figure.kind]
  if not kind then error(("figure %s: its kind is lines, bars, rows or heat"):format(name), 0) end
  for _, field in ipairs(kind.fields) do
    local one, other = field:match("^(%w+)|?(%w*)$")
    if figure[one] == nil and figure[other] == nil then
      error(("figure %s has no %s; %s makes all but its kind and title"):format(name,
        field:gsub("|", " or "), kind.from), 0)
    end
  end
end

---Writes BASE-NAME.svg and .png of each, and what they show as BASE.figures.json.
---@param base string
---@param figures table<string, kvr.NamedFigure>
function M.write_all(base, figures)
  for _, name in ipairs(schema.names(figures)) do check(name, figures[name]) end
  store.write_file(base .. ".figures.json", json.encode(figures, true) .. "\n")
  for _, name in ipairs(schema.names(figures)) do
    M[figures[name].kind](base .. "-" .. name, figures[name])
  end
end

return M
