-- What figures show, from results: medians with their ranges, and what is within the spread as
-- such. Each function gives what figure.lua draws, and is plain data that is kept beside the
-- picture.
local evidence = require("kvroute.evidence")
local metric = require("kvroute.metric")

local M = {}

local function matches(pool, options)
  if options.regime and pool.regime ~= options.regime then return false end
  for axis, value in pairs(options.at or {}) do
    if pool.at[axis] ~= value then return false end
  end
  return true
end

local function is_marked(pool)
  if #pool.excluded > 0 then return true end
  for _, result in ipairs(pool.results) do
    if #evidence.flags(result) > 0 then return true end
  end
  return false
end

---@param pool kvr.Pool?
---@param name string of a metric
---@param x number?
---@return kvr.FigurePoint?
local function point_of(pool, name, x)
  if not pool then return nil end
  local value = pool:value(name)
  if value ~= value then return x and { x = x } or nil end
  local least, most = pool:range(name)
  return {
    x = x, y = value, low = least, high = most, marked = is_marked(pool) or nil,
    repetitions = #pool.results,
  }
end

-- Shares are drawn in percent, as their axes say.
local function scaled(point, m)
  if point and point.y and m.axis:find("(%)", 1, true) then
    for _, name in ipairs({ "y", "low", "high" }) do point[name] = 100 * point[name] end
  end
  return point
end

local function policies_of(results, options)
  return options.policies or results:policies()
end

---@class kvr.FigureChoice
---@field at table<string, any>? only pools that stand there
---@field regime "closed"|"open"|nil only these
---@field policies string[]? labels; all
---@field title string?

---One metric over an axis of numbers.
---@param results kvr.Results
---@param name string of a metric
---@param axis string|fun(at: table<string, any>): number? or what stands for it; nil: not here
---@param x kvr.FigureAxis
---@param options kvr.FigureChoice?
---@return kvr.FigurePanel
function M.over(results, name, axis, x, options)
  options = options or {}
  local m, series = metric.find(name), {}
  local x_of = type(axis) == "function" and axis or function(at) return at[axis] end
  for _, policy in ipairs(policies_of(results, options)) do
    local points = {}
    for _, pool in ipairs(results.pools) do
      local at_x = pool.policy == policy and matches(pool, options) and x_of(pool.at)
      if at_x then points[#points + 1] = scaled(point_of(pool, name, at_x), m) end
    end
    table.sort(points, function(a, b) return a.x < b.x end)
    if #points > 0 then series[#series + 1] = { name = policy, points = points } end
  end
  return { title = options.title, x = x, y = { label = m.axis, min = 0 }, series = series }
end

local function values_of(results, axis, options)
  local out, known = {}, {}
  for _, pool in ipairs(results.pools) do
    local value = pool.at[axis]
    if value ~= nil and matches(pool, options) and not known[value] then
      known[value] = true
      out[#out + 1] = value
    end
  end
  return out
end

local function pool_at(results, policy, options, more)
  for _, pool in ipairs(results.pools) do
    local fits = pool.policy == policy and matches(pool, options)
    for axis, value in pairs(more) do fits = fits and pool.at[axis] == value end
    if fits then return pool end
  end
end

---One metric in groups, one a value of the axis.
---@param results kvr.Results
---@param name string
---@param axis string
---@param label string of the axis
---@param options kvr.FigureChoice?
---@return table # for figure.bars, without its title
function M.groups(results, name, axis, label, options)
  options = options or {}
  local m, series, groups = metric.find(name), {}, {}
  local values = values_of(results, axis, options)
  for i, value in ipairs(values) do groups[i] = tostring(value) end
  for j, policy in ipairs(policies_of(results, options)) do
    series[j] = { name = policy, values = {} }
    for i, value in ipairs(values) do
      local pool = pool_at(results, policy, options, { [axis] = value })
      series[j].values[i] = scaled(point_of(pool, name), m) or false
    end
  end
  return { x = { label = label }, y = { label = m.axis }, groups = groups, series = series }
end

---@class kvr.FigureGrid two axes: { axis = "skew", label = "skew" }
---@field x {axis: string, label: string}
---@field y {axis: string, label: string}

local function grid_axes(results, grid, options)
  return { label = grid.x.label, values = values_of(results, grid.x.axis, options) },
    { label = grid.y.label, values = values_of(results, grid.y.axis, options) }
end

local function each_cell(results, grid, options, cell)
  local x, y = grid_axes(results, grid, options)
  local cells = {}
  for i, at_x in ipairs(x.values) do
    for j, at_y in ipairs(y.values) do
      local made = cell({ [grid.x.axis] = at_x, [grid.y.axis] = at_y })
      if made then
        made.x, made.y = i, j
        cells[#cells + 1] = made
      end
    end
  end
  return { x = x, y = y, cells = cells }
end

---How one policy stands against another over two axes; grey within the spread.
---@param results kvr.Results
---@param name string
---@param grid kvr.FigureGrid
---@param policy string
---@param baseline string
---@param options kvr.FigureChoice?
---@return table # for figure.heat, without its title
function M.against(results, name, grid, policy, baseline, options)
  options = options or {}
  local show = metric.find(name).show
  local out = each_cell(results, grid, options, function(at)
    local ours = pool_at(results, policy, options, at)
    local theirs = pool_at(results, baseline, options, at)
    local a, b = ours and ours:value(name) or 0 / 0, theirs and theirs:value(name) or 0 / 0
    if a ~= a or b ~= b then return { text = "not known" } end
    local versus = ours:against(theirs, name)
    local change = b == 0 and "+" .. show(a) .. " over 0" or ("%+.0f %%"):format(versus.percent)
    local text = ("%s\n%s : %s"):format(change, show(a), show(b))
    return {
      value = b == 0 and 100 or versus.percent, grey = not versus.separated,
      text = versus.separated and text or text .. "\nin spread",
    }
  end)
  out.most = 200
  out.note = ("medians of %s : %s; grey: ranges of repetitions touch"):format(policy, baseline)
  return out
end

---Which policy is best where, and the runner-up; grey where their ranges touch.
---@param results kvr.Results
---@param name string
---@param grid kvr.FigureGrid
---@param options kvr.FigureChoice?
---@return table # for figure.heat, without its title
function M.winners(results, name, grid, options)
  options = options or {}
  local m = metric.find(name)
  local sign = m.better == "less" and -1 or 1
  local out = each_cell(results, grid, options, function(at)
    local ranked = {}
    for _, policy in ipairs(policies_of(results, options)) do
      local pool = pool_at(results, policy, options, at)
      local value = pool and pool:value(name) or 0 / 0
      if value == value then ranked[#ranked + 1] = { pool = pool, value = sign * value } end
    end
    if #ranked < 2 then return { text = "not known" } end
    table.sort(ranked, function(a, b)
      if a.value ~= b.value then return a.value > b.value end
      return a.pool.policy < b.pool.policy
    end)
    local best, second = ranked[1].pool, ranked[2].pool
    local versus = best:against(second, name)
    return {
      name = best.policy, grey = not versus.separated,
      text = ("%s\n%s\n%s %s"):format(best.policy, m.show(best:value(name)),
        versus.separated and "then" or "contested by", second.policy),
    }
  end)
  out.note = "the runner-up below; grey: its range and the best one's touch"
  return out
end

return M
