-- A chat request of so many turns, each extending the one before, as JSON on standard output:
--   luajit sample_chat.lua TURNS
local cjson = require("cjson")

local turns = tonumber(arg[1] or 1)
local messages = { {
  role = "system",
  content = ("You answer questions about a parcel depot, briefly and politely. "):rep(8),
} }
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
print(cjson.encode({ model = "emulated", stream = true, max_tokens = 8, messages = messages }))
