-- What all figures have: a frame with its axes, a key at the right, a title, a note below.
local gnuplot = require("kvroute.gnuplot")
local palette = require("kvroute.palette")

local M = {}

local quote, number = gnuplot.quote, gnuplot.number

-- A tick at the very end of a logarithmic axis falls outside by rounding, so that ends a bit later.
local function range(axis)
  local max = axis.max and axis.log2 and axis.max * 1.03 or axis.max
  return ("[%s:%s]"):format(axis.min and number(axis.min) or "*", max and number(max) or "*")
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
  local max = most * 1.08
  if panel.y.label:find("(%)", 1, true) and most <= 100 then max = math.min(max, 100) end
  return { label = panel.y.label, min = panel.y.min, max = max }
end

function M.frame(plot)
  plot:add("set border 3 lw 1 lc rgb '#555555'\nset tics nomirror textcolor rgb '#333333'")
  plot:add("set format '%g'")
  plot:add("set grid ytics lc rgb '#e5e5e5' lw 1 dt 1")
end

function M.axes(plot, panel)
  plot:add("set xlabel %s\nset ylabel %s", quote(panel.x.label), quote(panel.y.label))
  plot:add("unset logscale\nset xtics autofreq")
  if panel.x.log2 then plot:add("set logscale x 2") end
  if panel.x.ticks then
    local parts = {}
    for i, tick in ipairs(panel.x.ticks) do
      parts[i] = type(tick) == "table" and quote(tick[2]) .. " " .. number(tick[1])
        or number(tick)
    end
    plot:add("set xtics (%s)", table.concat(parts, ", "))
  end
  plot:add("set xrange %s\nset yrange %s", range(panel.x), range(with_headroom(panel)))
  plot:add(panel.title and "set title %s font ',11'" or "unset title",
    panel.title and quote(panel.title))
end

function M.across(plot, panel)
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

-- The key is a column of its own at the right, as wide as its longest text.
function M.key_width(labels)
  local longest = 0
  for _, label in ipairs(labels) do longest = math.max(longest, #label) end
  return math.min(46 + longest * 7, 320)
end

function M.write_key(plot, list, left, kind)
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

function M.labels_of(list)
  local out = {}
  for i, series in ipairs(list) do out[i] = series.label or series.name end
  return out
end

-- Where panel i of n stands, in parts of the picture; `left` and `top` are for labels.
function M.place(plot, i, n, room)
  local each = (plot.width - room.key) / n
  plot:add("set lmargin at screen %s\nset rmargin at screen %s",
    number(((i - 1) * each + (room.left or 82)) / plot.width),
    number((i * each - 16) / plot.width))
  plot:add("set bmargin at screen %s\nset tmargin at screen %s",
    number((62 + plot.foot) / plot.height), number((plot.height - (room.top or 50)) / plot.height))
end

-- A picture with room for the note below.
function M.start(figure, width, height)
  local foot = figure.note and 18 or 0
  local plot = gnuplot.new(math.max(width, #figure.title * 9 + 30), height + foot)
  plot.foot = foot
  return plot
end

function M.heading(plot, figure)
  plot:add("set label 1001 %s at screen %s, screen %s left font ',13' front", quote(figure.title),
    number(20 / plot.width), number((plot.height - 22) / plot.height))
  if figure.note then
    plot:add("set label 1002 %s at screen %s, screen %s left font ',9' tc rgb '#666666' front",
      quote(figure.note), number(20 / plot.width), number(14 / plot.height))
  end
end

return M
