-- Mini-SWE-agent conversations with their text, one model call a line: session_id, timestamp_us,
-- turn, append (what is new on the user's side), output (the answer). A row's `user` and
-- `assistant` are the messages that this call adds to the chat, so turn k sends user 1, assistant
-- 1, ..., user k.
--
-- There are no ids: the key is the text. A conversation only grows, so its blocks are numbered
-- from its start, and lengths are estimated from bytes. Sessions overlap in time but stand one
-- after another in the file, so a row has the time since the session's call before. That call and
-- the tool run lie in it: the true think time is less.
local clock = require("kvroute.import.clock")

local M = {
  summary = "agent conversations with text",
  closed = true,
  options = { { "bytes-per-token", "X", "for lengths in tokens", 4 } },
}

local BLOCK_TOKENS = 16

---@param source kvr.Source
function M.rows(source, options)
  local bytes_per_token = options["bytes-per-token"]
  if bytes_per_token < 1 then error("--bytes-per-token must be 1 or more", 0) end
  local base, blocks, bytes, session, turn, last = 0, 0, 0, nil, 0, 0
  return function()
    local line = source:object()
    if not line then return nil end
    local id = source:text_of(line.session_id, "session_id")
    local at = source:whole(line.timestamp_us, "timestamp_us", 0)
    local user = source:text_of(line.append, "append")
    if id ~= session then
      base, blocks, bytes, session, turn, last = base + blocks, 0, 0, id, 0, at
    else
      user = user:gsub("^\n\n", "")
    end
    turn = turn + 1
    if line.turn ~= turn then source:fail("turn", "is not %d", turn) end
    if at < last then source:fail("timestamp_us", "is before the turn above") end
    local answer = source:text_of(line.output, "output")
    local input = math.ceil((bytes + #user) / bytes_per_token)
    blocks = math.floor(input / BLOCK_TOKENS)
    local row = {
      session = id, turn = turn, think_ms = clock.rounded((at - last) / 1000),
      input_tokens = input, output_tokens = math.ceil(#answer / bytes_per_token),
      user = user, assistant = answer,
    }
    if blocks > 0 then row.block_tokens, row.blocks = BLOCK_TOKENS, { { base, blocks } } end
    bytes, last = bytes + #user + #answer, at
    return row
  end
end

return M
