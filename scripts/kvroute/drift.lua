-- Was a cell measured while it stood still? The median time to first token of requests that arrived
-- in the first half is held against that of the second, turn by turn of the conversation, since a
-- later turn is a longer prompt. Either direction counts:
--
--   cold opening            the first half was slower: the warm-up was too short
--   fleet slowed            the second half was
--   past saturation         the same in an open loop that leaves a backlog: its goodput stands, its
--                           times to first token mean nothing
--   partial visits          a turn was asked in one half only, so the halves are different work
--   fractional visit periods   the same in an open loop
--
-- Halves are of arrivals (when a request was due in an open loop, sent in a closed one), never of
-- answers: a long drain would put every request into the first.
--
--   local drift = Drift.new()
--   drift:see(at_ms, turn, ttft_ms)        for each measured request; nil: it did not succeed
--   drift:finish { open = false, turns = 4, backlog = 0.02 }
--
-- Memory is bounded: beyond SAMPLES requests every other one is forgotten, again and again.
local stats = require("kvroute.stats")

local M = {
  LIMIT = 0.25,    -- of the second half's median
  FLOOR = 5,       -- successes a half, below which a turn is not judged
  SATURATED = 0.2, -- backlog
  SAMPLES = 262144,
}

---@class kvr.Drift
---@field at number[] when it arrived
---@field turn number[] of its conversation
---@field ttft number[] NaN: no success
local Drift = {}
Drift.__index = Drift

---@return kvr.Drift
function M.new()
  return setmetatable({ at = {}, turn = {}, ttft = {}, number = {}, kept = 0, seen = 0, keep = 1 },
    Drift)
end

-- Multiples of the golden ratio: those below `keep` lie evenly, in no rhythm that turns share.
local function scattered(number)
  return number * 0.6180339887498949 % 1
end

local function thin(self)
  local kept = 0
  self.keep = self.keep / 2
  for i = 1, self.kept do
    if scattered(self.number[i]) < self.keep then
      kept = kept + 1
      self.at[kept], self.turn[kept] = self.at[i], self.turn[i]
      self.ttft[kept], self.number[kept] = self.ttft[i], self.number[i]
    end
  end
  self.kept = kept
end

---@param at_ms number
---@param turn number?
---@param ttft_ms number? nil, NaN: it did not succeed
function Drift:see(at_ms, turn, ttft_ms)
  self.seen = self.seen + 1
  if self.keep < 1 and scattered(self.seen) >= self.keep then return end
  if self.kept == M.SAMPLES then thin(self) end
  local n = self.kept + 1
  self.kept = n
  self.at[n], self.turn[n], self.ttft[n] = at_ms, turn or 0, ttft_ms or 0 / 0
  self.number[n] = self.seen
end

---@class kvr.Halves one turn's requests
---@field offered integer[] first half, second half
---@field ttft number[][] of its successes

-- By turn, or all under 0.
local function split(self, by_turn)
  local first, last = math.huge, -math.huge
  for i = 1, self.kept do
    first, last = math.min(first, self.at[i]), math.max(last, self.at[i])
  end
  local middle, turns = (first + last) / 2, {}
  for i = 1, self.kept do
    local turn = by_turn and self.turn[i] or 0
    local halves = turns[turn]
    if not halves then
      halves = { offered = { 0, 0 }, ttft = { {}, {} } }
      turns[turn] = halves
    end
    local half = self.at[i] < middle and 1 or 2
    halves.offered[half] = halves.offered[half] + 1
    local ttft = self.ttft[i]
    if ttft == ttft then table.insert(halves.ttft[half], ttft) end
  end
  return turns
end

-- Adds one turn to what is known.
local function weigh(out, halves)
  local early, late = halves.ttft[1], halves.ttft[2]
  if halves.offered[1] == 0 or halves.offered[2] == 0 then
    out.turns_confined = out.turns_confined + 1
  elseif #early < M.FLOOR or #late < M.FLOOR then
    out.turns_thin = out.turns_thin + 1
  else
    local now = stats.median(late)
    local weight = #early + #late
    out.turns_compared = out.turns_compared + 1
    out.weight = out.weight + weight
    out.sum = out.sum + weight * (stats.median(early) - now) / now
  end
end

local function causes_of(drift, confined, cell)
  local causes = {}
  if confined > 0 then
    causes[1] = cell.open and "fractional visit periods" or "partial visits"
  end
  if drift and math.abs(drift) > M.LIMIT then
    local saturated = cell.open and (cell.backlog or 0) > M.SATURATED
    causes[#causes + 1] = saturated and "past saturation"
      or drift > 0 and "cold opening" or "fleet slowed"
  end
  return causes
end

-- Sums of floats depend on their order.
local function sorted_keys(of)
  local keys = {}
  for key in pairs(of) do keys[#keys + 1] = key end
  table.sort(keys)
  return keys
end

---@class kvr.DriftVerdict
---@field drift number? > 0: the first half was slower; nil: not enough to judge by
---@field basis "turns"|"pooled"
---@field turns_compared integer
---@field turns_thin integer asked in both halves, too rarely to judge by
---@field turns_confined integer asked in one half only
---@field causes string[] why the cell is flagged; none: it is not

---@param cell {open: boolean, turns: number?, backlog: number?} turns of a conversation, where all
---  have so many
---@return kvr.DriftVerdict
function Drift:finish(cell)
  local by_turn = (cell.turns or 0) > 0
  local out = { turns_compared = 0, turns_thin = 0, turns_confined = 0, weight = 0, sum = 0 }
  local turns = split(self, by_turn)
  for _, turn in ipairs(sorted_keys(turns)) do weigh(out, turns[turn]) end
  local drift = out.weight > 0 and out.sum / out.weight or nil
  local confined = by_turn and out.turns_confined or 0
  return {
    drift = drift, basis = by_turn and "turns" or "pooled",
    turns_compared = out.turns_compared, turns_thin = out.turns_thin, turns_confined = confined,
    causes = causes_of(drift, confined, cell),
  }
end

---Turns of a conversation, as the name of a workload states them.
---@param name string
---@return number? # nil: it states none
function M.turns_of(name)
  return tonumber(name:match("^sessions%(.-turns=(%d+)"))
end

return M
