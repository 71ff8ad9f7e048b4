-- TraceLab rounds: sessions with what the provider reported as read from its cache (a row's
-- `cached_tokens`) and the wall times of their events.
--
-- There are no ids. A prompt that is not shorter than the one before is taken to extend it; of a
-- shorter one the reported prefix is. What the provider read is less where it had evicted: that is
-- the difference between believed and reported.
local blocks = require("kvroute.import.blocks")
local clock = require("kvroute.import.clock")

local M = {
  summary = "TraceLab rounds: think times and reported cached tokens",
  closed = true,
  options = {},
}

local BLOCK_TOKENS = 16

local function wall(source, event, name)
  local text = source:text_of(event and event.timestamp, name)
  local seconds, ms = clock.wall(text)
  if not seconds then source:fail(name, "%q is no wall time", text) end
  return seconds * 1000 + ms
end

-- The first `keep` blocks of a prompt and new ones behind them.
local function extended(runs, keep, total, next_id)
  local out = {}
  for _, run in ipairs(runs) do
    local count = math.min(run[2], keep)
    blocks.add(out, run[1], count)
    keep = keep - count
  end
  local new = total - blocks.count(out)
  blocks.add(out, next_id, new)
  return out, next_id + new
end

---@param source kvr.Source
function M.rows(source)
  local session, turn, last, before, runs, next_id = nil, 0, 0, 0, {}, 0
  return function()
    local line = source:object()
    if not line then return nil end
    local id = source:text_of(line.session_id, "session_id")
    local events = source:list_of(line.timing_events, "timing_events")
    local start = wall(source, events[1], "timing_events[0].timestamp")
    local stop = wall(source, events[#events], "timing_events[].timestamp")
    local input = source:whole(line.input_tokens_total, "input_tokens_total", 1)
    local cached = source:whole(line.prefix_tokens, "prefix_tokens", 0, input)
    if id ~= session then session, turn, last, before, runs = id, 0, start, 0, {} end
    if line.round_index ~= turn then source:fail("round_index", "is not %d", turn) end
    turn = turn + 1
    local kept = input >= before and before or cached
    runs, next_id = extended(runs, math.floor(kept / BLOCK_TOKENS),
      math.floor(input / BLOCK_TOKENS), next_id)
    local row = {
      session = id, turn = turn, think_ms = clock.rounded(math.max(0, start - last)),
      input_tokens = input, output_tokens = source:whole(line.output_tokens, "output_tokens", 0),
      cached_tokens = cached,
    }
    if #runs > 0 then row.block_tokens, row.blocks = BLOCK_TOKENS, runs end
    last, before = stop, input
    return row
  end
end

return M
