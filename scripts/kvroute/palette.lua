-- Policies in one order and each in one colour, in all tables and figures. The colours are told
-- apart by eyes that do not see red or green, the first eight also on a grey print.
local M = {}

-- From the plainest to the best informed.
local order = {
  "round_robin", "random", "p2c", "least_outstanding", "session_affinity",
  "bounded_session_affinity", "prefix_hash", "prefix_affinity", "exact_residency", "hybrid",
  "cacheroute",
}

local colours = {
  round_robin = "#5f5f5f",
  random = "#a8a8a8",
  p2c = "#6b6b2f",
  least_outstanding = "#e69f00",
  session_affinity = "#cc79a7",
  bounded_session_affinity = "#56b4e9",
  prefix_hash = "#009e73",
  prefix_affinity = "#0072b2",
  exact_residency = "#d55e00",
  hybrid = "#7a3d00",
  cacheroute = "#882255",
  -- Other spill rules: a hue a signal, the darker the more reluctant.
  ["prefix_affinity /off"] = "#661100",
  ["prefix_affinity /load_min 4"] = "#003f66",
  ["prefix_affinity /load_mean"] = "#b58bd6",
  ["prefix_affinity /load_mean 3"] = "#6a2c91",
  ["prefix_affinity /tokens"] = "#f0a830",
  ["prefix_affinity /tokens 2"] = "#a85c00",
}

-- For all others, by their name; none is near one of those above.
local spare = {
  "#332288", "#117733", "#44aa99", "#999933", "#661100", "#aa4499", "#6699cc", "#aa4466",
  "#4b8b3b", "#8a6fb0",
}

local rank = {}
for i, name in ipairs(order) do rank[name] = i end

-- "prefix_affinity spill=off /load_min" is a kind of prefix_affinity.
local function bare(label)
  return label:match("^[%w_]+") or label
end

---Known ones first, in their order; then by name.
---@param a string label
---@param b string
---@return boolean
function M.before(a, b)
  local x, y = rank[bare(a)] or #order + 1, rank[bare(b)] or #order + 1
  if x ~= y then return x < y end
  return a < b
end

local function hash(text)
  local h = 5381
  for i = 1, #text do h = (h * 33 + text:byte(i)) % 2147483647 end
  return h
end

---The same label always has the same colour; a variant with params or another spill rule has one of
---its own.
---@param label string
---@return string # "#rrggbb"
function M.colour(label)
  return colours[label] or spare[hash(label) % #spare + 1]
end

return M
