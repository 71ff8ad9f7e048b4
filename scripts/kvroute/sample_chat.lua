-- A chat request of so many turns, each extending the one before, as JSON on standard output. Its
-- system prompt has so many bytes; answers end with what the engine counted.
--   luajit sample_chat.lua [TURNS [BYTES]]
local cjson = require("cjson")

local turns = tonumber(arg[1] or 1)
local bytes = tonumber(arg[2] or 512)
assert(turns and bytes, "usage: sample_chat.lua [TURNS [BYTES]]")

local rule = "You answer questions about a parcel depot, briefly and politely. "
local messages = { { role = "system", content = rule:rep(math.ceil(bytes / #rule)):sub(1, bytes) } }
for turn = 1, turns do
  messages[#messages + 1] = {
    role = "user",
    content = ("Question %d: which dock takes parcels of %d kilograms? ")
      :format(turn, turn * 3):rep(4),
  }
  if turn < turns then
    messages[#messages + 1] = { role = "assistant", content = ("Dock %d takes them."):format(turn) }
  end
end
print(cjson.encode({
  model = "emulated", stream = true, stream_options = { include_usage = true }, max_tokens = 8,
  messages = messages,
}))
