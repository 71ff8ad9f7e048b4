-- Bytes that wait in the router for a client which does not read.
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local M = {}

-- Sends pieces of a stream to a client that does not read, each when the one before has passed the
-- router, at most so many. Returns the client, the exchange and how many passed before it stood.
local PIECE = ("x"):rep(16000)
local function send_ahead(fleet, headers, most)
  local client = fleet:connect(16384)
  client:begin(Fleet.chat_request("Hello", { stream = true }, headers))
  client:pause()
  local exchange = Replica.take_any(fleet.replicas)
  exchange:stream()
  local count = 0
  local function has_passed()
    local open = fleet:admin("/admin/requests").requests[1]
    return open.bytes_out >= (count + 1) * #PIECE
  end
  while count < most do
    exchange:chunk(PIECE)
    if not loop.try(has_passed, 0.2) then break end
    count = count + 1
  end
  return client, exchange, count
end

-- A client that has read nothing of an answer that the replica has finished; its last bytes are
-- still with the router. Returns the client and the length of the body.
function M.finished(fleet, headers)
  local trial, _, room = send_ahead(fleet, headers, 1000)
  trial:reset()
  local client, exchange, sent = send_ahead(fleet, headers, room - 2)
  assert(sent == room - 2, "the second stream stood elsewhere")
  exchange:send("0\r\n\r\n")
  fleet:rows(2) -- it is done
  return client, sent * #PIECE
end

return M
