-- The row form itself, checked: experiments/data/README.md says what its fields mean.
local blocks = require("kvroute.import.blocks")

local M = { summary = "rows that were imported before: checks, cuts and joins them", options = {} }

local TOKENS_MAX = 2 ^ 24
local KNOWN = {
  session = true, turn = true, tenant = true, at_ms = true, think_ms = true, input_tokens = true,
  output_tokens = true, block_tokens = true, blocks = true, input_bytes = true, block_bytes = true,
  cached_tokens = true, measured = true, user = true, assistant = true,
}

local function check_blocks(source, row)
  local in_bytes = row.input_bytes ~= nil
  local unit = in_bytes and "block_bytes" or "block_tokens"
  if in_bytes then source:whole(row.input_bytes, "input_bytes", 1, 2 ^ 30) end
  if row.blocks == nil and row[unit] == nil then return end
  source:whole(row[unit], unit, 1, 2 ^ 16)
  local runs, last = {}, -1
  for _, run in ipairs(source:list_of(row.blocks, "blocks")) do
    source:list_of(run, "blocks")
    local first = source:whole(run[1], "blocks", 0)
    local count = source:whole(run[2], "blocks", 1)
    if first == last + 1 and last >= 0 then source:fail("blocks", "two runs that are one") end
    blocks.add(runs, first, count)
    last = first + count - 1
  end
  local length, of = in_bytes and row.input_bytes or row.input_tokens,
    in_bytes and "bytes" or "tokens"
  local most = blocks.of_tokens(length, row[unit], true)
  if blocks.count(runs) > most then
    source:fail("blocks", "%d ids; a prompt of %d %s has at most %d blocks of %d",
      blocks.count(runs), length, of, most, row[unit])
  end
end

local function check(source, row, last_ms)
  for key in pairs(row) do
    if not KNOWN[key] then source:fail(key, "is no field of a row") end
  end
  source:whole(row.input_tokens, "input_tokens", 1, TOKENS_MAX)
  source:whole(row.output_tokens, "output_tokens", 0, TOKENS_MAX)
  if row.session ~= nil then source:text_of(row.session, "session") end
  if row.tenant ~= nil then source:text_of(row.tenant, "tenant") end
  if row.turn ~= nil then source:whole(row.turn, "turn", 1) end
  if row.at_ms ~= nil then source:number_of(row.at_ms, "at_ms", last_ms) end
  if row.think_ms ~= nil then
    source:number_of(row.think_ms, "think_ms", 0)
    if row.session == nil then source:fail("think_ms", "needs a session") end
    if row.at_ms ~= nil then source:fail("think_ms", "a row has this or at_ms") end
  end
  check_blocks(source, row)
end

---@param source kvr.Source
function M.rows(source)
  local last_ms = 0
  return function()
    local row = source:object()
    if not row then return nil end
    check(source, row, last_ms)
    last_ms = row.at_ms or last_ms
    return row
  end
end

return M
