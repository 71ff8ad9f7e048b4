-- Seeded draws of the importers. splitmix64 for bits, so that a seed gives the same rows anywhere.
local bit = require("bit")

local M = {}

---@class kvr.Dice
local Dice = {}
Dice.__index = Dice

---@param seed integer
---@return kvr.Dice
function M.new(seed)
  return setmetatable({ state = 0ULL + seed }, Dice)
end

---In (0, 1): never 0, so that its logarithm exists.
function Dice:uniform()
  self.state = self.state + 0x9e3779b97f4a7c15ULL
  local z = self.state
  z = bit.bxor(z, bit.rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
  z = bit.bxor(z, bit.rshift(z, 27)) * 0x94d049bb133111ebULL
  z = bit.bxor(z, bit.rshift(z, 31))
  return (tonumber(bit.rshift(z, 12)) + 0.5) / 2 ^ 52
end

local function normal(dice)
  return math.sqrt(-2 * math.log(dice:uniform())) * math.cos(2 * math.pi * dice:uniform())
end

---Gamma with that shape and scale 1 (Marsaglia and Tsang 2000).
function Dice:gamma(shape)
  if shape < 1 then return self:gamma(shape + 1) * self:uniform() ^ (1 / shape) end
  local d = shape - 1 / 3
  local c = 1 / math.sqrt(9 * d)
  while true do
    local x = normal(self)
    local v = (1 + c * x) ^ 3
    if v > 0 and math.log(self:uniform()) < x * x / 2 + d - d * v + d * math.log(v) then
      return d * v
    end
  end
end

-- ln of the gamma function for x >= 1, by Stirling's series behind x = 8.
local function log_gamma(x)
  local shift = 0
  while x < 8 do
    shift = shift + math.log(x)
    x = x + 1
  end
  return (x - 0.5) * math.log(x) - x + 0.5 * math.log(2 * math.pi) + 1 / (12 * x)
    - 1 / (360 * x ^ 3) + 1 / (1260 * x ^ 5) - shift
end

---A gap of mean 1. `family` is "Gamma" or "Weibull".
function Dice:gap(family, shape)
  if family == "Gamma" then return self:gamma(shape) / shape end
  return (-math.log(self:uniform())) ^ (1 / shape) / math.exp(log_gamma(1 + 1 / shape))
end

---What is left of such a gap at a moment that knows nothing of it: the first gap of a process that
---has always been running. The gap found then is drawn in proportion to its length.
function Dice:rest_of_gap(family, shape)
  if family == "Gamma" then return self:uniform() * self:gamma(shape + 1) / shape end
  local found = self:gamma(1 + 1 / shape) ^ (1 / shape) / math.exp(log_gamma(1 + 1 / shape))
  return self:uniform() * found
end

return M
