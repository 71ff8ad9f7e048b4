-- Checks that several specs share.
local cjson = require("cjson")

local M = {}

---Equal byte for byte; says where they differ, not all of what they are.
function M.same_bytes(expected, got, what)
  if expected == got then return end
  local at = 1
  while expected:byte(at) == got:byte(at) and at <= #expected do at = at + 1 end
  error(("%s: %d bytes instead of %d, the first difference at %d: %q instead of %q"):format(
    what or "bytes differ", #got, #expected, at, got:sub(at, at + 20),
    expected:sub(at, at + 20)), 2)
end

---An error of ours, in the API's own shape.
---@param answer table a message
---@param status integer
---@param code string
---@return table error
function M.api_error(answer, status, code)
  local text = answer:body()
  assert(answer.status == status,
    ("status %s instead of %d: %s"):format(answer.status, status, text))
  assert(answer:header("content-type") == "application/json", "an error that is not JSON")
  local ok, body = pcall(cjson.decode, text)
  assert(ok and type(body.error) == "table", "no error object: " .. text)
  local err = body.error
  assert(err.code == code, ("code %s instead of %s: %s"):format(tostring(err.code), code, text))
  assert(type(err.message) == "string" and #err.message > 0, "an error without a message")
  assert(type(err.type) == "string" and #err.type > 0, "an error without a type")
  assert(err.param ~= nil, "an error without param, be it null") -- cjson.null is not nil
  return err
end

return M
