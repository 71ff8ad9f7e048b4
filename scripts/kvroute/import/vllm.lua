-- Measured vLLM runs of LLMServingSim: requests.jsonl with arrival_time (Unix s), lengths and the
-- engine's own times, which are seconds of another clock: only their differences mean anything. A
-- row's `measured` has them. `prompts` adds chained ids of full 16-token blocks and which earlier
-- prompt a prompt continues, from a side file with a line for each request in the same order.
local blocks = require("kvroute.import.blocks")
local clock = require("kvroute.import.clock")
local source_of = require("kvroute.import.source")

local M = {
  summary = "measured vLLM runs: arrivals, lengths and what the engine took",
  options = { { "prompts", "FILE", "block ids of the same requests" } },
}

local BLOCK_TOKENS = 16

local function ms_between(source, request, first, last)
  local from = source:number_of(request[first], first, 0)
  return clock.rounded((source:number_of(request[last], last, from) - from) * 1000)
end

local function prompts_of(path)
  local source = source_of.open(path)
  local runs_of = blocks.reader(source, { block_tokens = BLOCK_TOKENS, partial = false })
  local seen = {} -- number of a request: session and turn
  return function(number, row, requests)
    local line = source:object()
    if not line then requests:fail(nil, "%s has no line for it", path) end
    if source:whole(line.i, "i", 0) ~= number then
      source:fail("i", "is %d where %d is due", line.i, number)
    end
    if line.input_length ~= row.input_tokens then
      source:fail("input_length", "is %s; the request has %d", tostring(line.input_length),
        row.input_tokens)
    end
    row.block_tokens = BLOCK_TOKENS
    row.blocks = runs_of(line.hash_ids, "hash_ids", row.input_tokens)
    local before = source:whole(line.continues, "continues", -1, number - 1)
    local turn = before >= 0 and seen[before] or { session = "r" .. number, turn = 0 }
    row.session, row.turn = turn.session, turn.turn + 1
    seen[number] = { session = row.session, turn = row.turn }
  end
end

---@param source kvr.Source
function M.rows(source, options)
  local add_prompt = options.prompts and prompts_of(options.prompts)
  local first, number, last = nil, -1, 0
  return function()
    local request = source:object()
    if not request then return nil end
    number = number + 1
    if request.request_id ~= "bench-" .. number then
      source:fail("request_id", "is not bench-%d", number)
    end
    local arrival = source:number_of(request.arrival_time, "arrival_time", 0)
    first = first or arrival
    -- Unix seconds in a double are good for a microsecond.
    local at = math.floor((arrival - first) * 1e6 + 0.5) / 1e3
    if at < last then source:fail("arrival_time", "is before the line above") end
    last = at
    local row = {
      at_ms = at,
      input_tokens = source:whole(request.input_toks, "input_toks", 1),
      output_tokens = source:whole(request.output_toks, "output_toks", 1),
      measured = {
        queue_ms = ms_between(source, request, "queued_ts", "scheduled_ts"),
        ttft_ms = ms_between(source, request, "queued_ts", "first_token_ts"),
        e2el_ms = ms_between(source, request, "queued_ts", "last_token_ts"),
      },
    }
    if add_prompt then add_prompt(number, row, source) end
    return row
  end
end

return M
