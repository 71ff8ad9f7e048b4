-- Bars that lie, of figure.lua: a row a policy, which has its name beside it, and in each a bar for
-- every group with its figure at the end.
local gnuplot = require("kvroute.gnuplot")
local palette = require("kvroute.palette")
local parts = require("kvroute.figure_parts")

local quote, number = gnuplot.quote, gnuplot.number

-- Bar j of n in row i, from below.
local function band(i, j, n)
  local each = 0.76 / n
  local top = i + 0.38 - (j - 1) * each
  return top - each * 0.92, top
end

local function most_of(figure)
  local most = 0
  for _, series in ipairs(figure.series) do
    for _, value in ipairs(series.values) do
      if value and value.y then most = math.max(most, value.high or value.y) end
    end
  end
  return most > 0 and most or 1
end

local function write_figure(plot, group, value, y)
  local text = ("%s  " .. (value.y < 100 and "%.3g" or "%.0f")):format(group, value.y)
  plot:add("set label %s at %s, %s left font ',9' tc rgb '#444444' offset 0.6,0 front",
    quote(text), number(math.max(value.high or value.y, value.y)), number(y))
end

-- The second group's bars are paler, and so on.
local function draw(plot, figure, series, i)
  local out, n = {}, #figure.groups
  for j, group in ipairs(figure.groups) do
    local value = series.values[j]
    if value and value.y then
      local low, high = band(i, j, n)
      local middle = (low + high) / 2
      local data = plot:data({ { value.y, middle, 0, value.y, low, high } })
      local range = plot:data({ { value.low or value.y, middle,
        (value.high or value.y) - (value.low or value.y) } })
      write_figure(plot, group, value, middle)
      out[#out + 1] = ("%s using 1:2:3:4:5:6 with boxxyerror fc rgb '%s' fs transparent solid %g "
        .. "noborder notitle"):format(data, series.colour or palette.colour(series.name),
        1 - 0.5 * (j - 1) / math.max(1, n - 1))
      out[#out + 1] = ("%s using 1:2:3:(0) with vectors nohead lw 1.2 lc rgb '#333333' notitle")
        :format(range)
    end
  end
  return out
end

---@param base string
---@param figure {title: string, note: string?, x: kvr.FigureAxis, groups: string[],
---  series: kvr.FigureSeries[]}
return function(base, figure)
  local rows, ticks, commands = #figure.series, {}, {}
  local left = parts.key_width(parts.labels_of(figure.series))
  local plot = parts.start(figure, left + 560, rows * (14 + 16 * #figure.groups) + 120)
  plot:add("set border 3 lw 1 lc rgb '#555555'\nset tics nomirror textcolor rgb '#333333'")
  plot:add("set format '%g'\nset grid xtics lc rgb '#e5e5e5' lw 1 dt 1\nunset key")
  for at, series in ipairs(figure.series) do
    local i = rows - at + 1 -- the first one on top
    ticks[at] = ("%s %d"):format(quote(series.label or series.name), i)
    for _, command in ipairs(draw(plot, figure, series, i)) do commands[#commands + 1] = command end
  end
  plot:add("set xlabel %s\nset ytics (%s) scale 0", quote(figure.x.label),
    table.concat(ticks, ", "))
  -- Room for the figures at the ends.
  plot:add("set xrange [0:%s]\nset yrange [0.4:%g]", number(figure.x.max or most_of(figure) * 1.18),
    rows + 0.6)
  parts.place(plot, 1, 1, { key = 0, left = left })
  parts.heading(plot, figure)
  plot:add("plot %s", #commands > 0 and table.concat(commands, ", ") or "NaN notitle")
  plot:write(base)
end
