-- What a cache that evicts what was not used for longest holds, on average: the approximation by a
-- characteristic time (R. Fagin, "Asymptotic miss ratios over independent references", 1977;
-- H. Che, Y. Tung, Z. Wang, "Hierarchical Web caching systems", 2002). All that is cached lives for
-- the same time T after its last use, so under independent requests a thing asked for at rate r is
-- there with probability 1 - exp(-r T), and T is the time at which what is there fills the cache.
--
-- A cache that has not run for long has seen nothing older than its age: T is never more.
local M = {}

---@class kvr.CachedThing things of one kind
---@field rate number requests a second for each
---@field size number tokens
---@field count number? 1, how many of them

---@alias kvr.Presence fun(rate: number, time: number): number

---@type kvr.Presence
function M.lru(rate, time)
  return 1 - math.exp(-rate * time)
end

---A cache whose victim is drawn at random: a thing is there for a time that is exponential.
---@type kvr.Presence
function M.random(rate, time)
  return rate * time / (1 + rate * time)
end

local function held(things, churn, time, presence)
  local sum = churn * time
  for _, thing in ipairs(things) do
    sum = sum + (thing.count or 1) * thing.size * presence(thing.rate, time)
  end
  return sum
end

---Seconds that what is cached lives after its last use; the age where the cache is not full then.
---@param capacity number tokens
---@param things kvr.CachedThing[]
---@param churn number tokens a second that nobody asks for again
---@param age number? seconds since the cache was empty; infinite
---@param presence kvr.Presence? M.lru
---@return number
function M.time(capacity, things, churn, age, presence)
  presence = presence or M.lru
  local low, high = 0, math.min(age or math.huge, 1e9)
  if held(things, churn, high, presence) <= capacity then return high end
  for _ = 1, 200 do
    local middle = (low + high) / 2
    if held(things, churn, middle, presence) < capacity then low = middle else high = middle end
  end
  return (low + high) / 2
end

return M
