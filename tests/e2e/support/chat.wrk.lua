-- For wrk: chat requests, every other one a stream, over 100 sessions.
local body = '{"model":"%s","stream":%s,"max_tokens":3,'
  .. '"messages":[{"role":"user","content":"This is question %d of many."}]}'
local headers = { ["Content-Type"] = "application/json" }
local model, count

function init(arguments) -- luacheck: ignore 111
  model, count = arguments[1], 0
end

function request() -- luacheck: ignore 111
  count = count + 1
  headers["X-Session-Id"] = "s" .. count % 100
  local text = body:format(model, tostring(count % 2 == 0), count)
  return wrk.format("POST", "/v1/chat/completions", headers, text) -- luacheck: ignore 113
end
