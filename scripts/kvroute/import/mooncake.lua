-- Mooncake traces: one JSON object a line with timestamp (ms), input_length, output_length and
-- hash_ids, the ids of all blocks of the prompt with the partial last one.
--
-- Arrivals of the published files are rounded to 3 s, so that ten requests land at one instant.
-- That is a burst test; `spread` makes an ordinary open loop of it.
local blocks = require("kvroute.import.blocks")
local clock = require("kvroute.import.clock")
local dice = require("kvroute.import.dice")
local source_of = require("kvroute.import.source")

local M = {
  summary = "Mooncake traces: arrivals and chained ids of 512-token blocks",
  options = {
    { "spread", "HOW", "none: requests of one instant stay there; even, random: over 3 s", "none" },
    { "spread-ms", "MS", "the time that arrivals were rounded to", 3000 },
    { "turns", "FILE", "guessed sessions: row,derived_session,derived_turn,parent_row" },
    { "block-tokens", "N", "tokens of a block", 512 },
    { "unchained", nil, "ids name blocks whatever stands before them; they are chained here" },
  },
}

local TURNS_HEADER = "row,derived_session,derived_turn,parent_row"

local function sessions_of(path)
  local source, row = source_of.open(path), -1
  return function(line)
    local cells = source:cells(TURNS_HEADER)
    if not cells then line:fail(nil, "%s has no row for it", path) end
    row = row + 1
    local number = source:whole_cell(cells[1], "row", 0)
    if number ~= row then source:fail("row", "is %d where %d is due", number, row) end
    return "s" .. source:whole_cell(cells[2], "derived_session", 0),
      source:whole_cell(cells[3], "derived_turn", 1)
  end
end

local function reader(source, options)
  local runs_of = blocks.reader(source, {
    block_tokens = options["block-tokens"], partial = true, unchained = options.unchained,
  })
  local session_of = options.turns and sessions_of(options.turns)
  return function()
    local line = source:object()
    if not line then return nil end
    local row = {
      at_ms = source:number_of(line.timestamp, "timestamp", 0),
      input_tokens = source:whole(line.input_length, "input_length", 1),
      output_tokens = source:whole(line.output_length, "output_length", 0),
      block_tokens = options["block-tokens"],
    }
    row.blocks = runs_of(line.hash_ids, "hash_ids", row.input_tokens)
    if session_of then row.session, row.turn = session_of(source) end
    return row
  end
end

-- Requests of one instant, then the next instant: the room they may be spread over.
local function spread(next_row, options)
  local random = options.spread == "random" and dice.new(options.seed) or nil
  local group, at, ahead = {}, 1, next_row()
  local function fill()
    group, at = { ahead }, 1
    local start = ahead.at_ms
    repeat
      ahead = next_row()
      if ahead and ahead.at_ms == start then group[#group + 1] = ahead end
    until not ahead or ahead.at_ms ~= start
    local room = math.min(options["spread-ms"], ahead and ahead.at_ms - start or math.huge)
    local shares = {}
    for i = 1, #group do shares[i] = random and random:uniform() or (i - 1) / #group end
    table.sort(shares)
    for i, row in ipairs(group) do row.at_ms = clock.rounded(start + room * shares[i]) end
  end
  return function()
    if not group[at] then
      if not ahead then return nil end
      fill()
    end
    at = at + 1
    return group[at - 1]
  end
end

---@param source kvr.Source
function M.rows(source, options)
  local next_row = reader(source, options)
  if options.spread == "none" then return next_row end
  if options.spread ~= "even" and options.spread ~= "random" then
    error("--spread " .. options.spread .. ": there are none, even, random", 0)
  end
  return spread(next_row, options)
end

return M
