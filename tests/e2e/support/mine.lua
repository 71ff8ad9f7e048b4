-- A router whose policy `mine` is a text of the test's, which it changes under traffic.
local cjson = require("cjson")
local Fleet = require("e2e.support.fleet")
local Load = require("e2e.support.load")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local M = {}

-- A policy that says `reason`; `before` stands in front of pick, `body` at its start.
function M.text(reason, body, before)
  return ([[
local P = { api = 1, name = "mine" }
%s
function P.pick(request, view)
  %s
  return kvr.least(), "%s"
end
return P
]]):format(before or "", body or "", reason)
end

-- A router with the policy `mine`, and replicas that answer, unless they are `silent`.
function M.start(text, options)
  options = options or {}
  options.replicas = options.replicas or 2
  options.script = not options.silent and Replica.answers() or nil
  options.policies = { mine = text or M.text("first") }
  options.config = options.config or {}
  options.config.policy = "mine"
  return Fleet.start(options)
end

-- The same with replicas that take any load.
function M.start_for_load(text)
  return M.start(text, { replicas = Load.replicas(4) })
end

-- What decides now.
function M.reason_now(client, model)
  local answer = client:request(Fleet.chat_request("Hello", { model = model }))
  assert(answer.status == 200, answer.status)
  return answer:header("x-kvroute-reason")
end

-- Waits until it is `reason` that decides; the seconds since `since`.
function M.wait_reason(client, reason, since, model)
  loop.wait(function()
    if M.reason_now(client, model) == reason then return true end
    loop.sleep(0.003)
  end, 2, "reason " .. reason)
  return loop.now() - since
end

function M.wait_error(fleet, pattern)
  return loop.wait(function()
    local told = fleet:script().error
    return told ~= cjson.null and told:find(pattern) and told
  end, 1, "an error like " .. pattern)
end

function M.counters(fleet)
  return fleet:script().counters
end

return M
