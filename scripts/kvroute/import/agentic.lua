-- Coding-agent sessions of kv-cache-tester: one session a line, or one a file. Each request has its
-- start `t` in seconds since the session's, think_time, api_time, in, out and the ids of its full
-- blocks, as a list (hash_ids) or as runs (hash_runs).
--
-- - Ids mean something within their session, so each session gets ids of its own. `shared-heads`
--   makes the blocks of tools and system prompt common to sessions whose (tool_tokens,
--   system_tokens) agree, which is a guess at equality.
-- - A sub-agent is an entry with requests of its own, whose `t` counts from its start. The entry's
--   own `t` is when it returned, so it began duration_ms earlier; but one that was launched in the
--   background (duration_ms null) began at `t`.
-- - A session is one thread here: requests in order of their start, each after the end of the one
--   before. What overlapped has no think time.
local blocks = require("kvroute.import.blocks")
local clock = require("kvroute.import.clock")
local cjson = require("cjson")

local M = {
  summary = "coding-agent sessions: think times, growing prompts, sub-agents",
  closed = true,
  options = { { "shared-heads", nil, "equal tools and system prompts are shared by sessions" } },
}

-- The ids of one session, moved to where no other session has any.
local function ids_of(state, session, first_runs, head_blocks)
  local base, highest = state.base, 0
  local heads = {}
  if head_blocks > 0 then
    local pair = session.tool_tokens .. "," .. session.system_tokens
    local shared = state.heads[pair]
    if not shared then
      shared, base = base, base + head_blocks
      state.heads[pair] = shared
    end
    for _, run in ipairs(first_runs) do
      local count = math.min(run[2], head_blocks)
      heads[#heads + 1] = { first = run[1], count = count, shared = shared }
      shared, head_blocks = shared + count, head_blocks - count
      if head_blocks == 0 then break end
    end
  end
  local ids = {}
  -- One run may begin in the head and go on behind it.
  function ids.move(runs, first, count)
    highest = math.max(highest, first + count - 1)
    for _, head in ipairs(heads) do
      if count > 0 and first >= head.first and first < head.first + head.count then
        local common = math.min(count, head.first + head.count - first)
        blocks.add(runs, head.shared + first - head.first, common)
        first, count = first + common, count - common
      end
    end
    if count > 0 then blocks.add(runs, base + first, count) end
  end
  function ids.close() state.base = base + highest + 1 end
  return ids
end

local function runs_in(source, request, name, block_tokens)
  local runs = {}
  if request.hash_runs then
    for _, run in ipairs(source:list_of(request.hash_runs, name .. "hash_runs")) do
      blocks.add(runs, source:whole(run[1], name .. "hash_runs", 0),
        source:whole(run[2], name .. "hash_runs", 1))
    end
  else
    for _, id in ipairs(source:list_of(request.hash_ids, name .. "hash_ids")) do
      blocks.add(runs, source:whole(id, name .. "hash_ids", 0), 1)
    end
  end
  local want = blocks.of_tokens(source:whole(request["in"], name .. "in", 1), block_tokens, false)
  if blocks.count(runs) ~= want then
    source:fail(name .. (request.hash_runs and "hash_runs" or "hash_ids"),
      "%d ids; a prompt of %d tokens has %d full blocks of %d", blocks.count(runs), request["in"],
      want, block_tokens)
  end
  return runs
end

local function number_or(value, otherwise) return type(value) == "number" and value or otherwise end

-- All requests of a session with their start and end in seconds, in order of their start.
local function requests_of(source, session, block_tokens)
  local list = {}
  local function add(request, name, start, main)
    local row = {
      name = name, start = start, order = #list, main = main,
      think = main and type(request.think_time) == "number"
        and source:number_of(request.think_time, name .. "think_time", 0) or nil,
      runs = runs_in(source, request, name, block_tokens),
      input = request["in"], output = source:whole(request.out, name .. "out", 0),
    }
    row.stop = start + number_or(request.api_time, 0)
    list[#list + 1] = row
  end
  for i, request in ipairs(source:list_of(session.requests, "requests")) do
    local name = ("requests[%d]."):format(i - 1)
    local t = source:number_of(request.t, name .. "t", 0)
    if request.type == "subagent" then
      local began = math.max(0, t - number_or(request.duration_ms, 0) / 1000)
      for k, inner in ipairs(source:list_of(request.requests, name .. "requests")) do
        local inner_name = ("%srequests[%d]."):format(name, k - 1)
        add(inner, inner_name, began + source:number_of(inner.t, inner_name .. "t", 0), false)
      end
    else
      add(request, name, t, true)
    end
  end
  table.sort(list, function(a, b)
    if a.start ~= b.start then return a.start < b.start end
    return a.order < b.order
  end)
  return list
end

-- The recorded think time where the request before in the list is also the one it was measured
-- from; else what lies between the two.
local function think_ms(before, request)
  if not before then return 0 end
  if request.think and before.main and before.order == request.order - 1 then
    return clock.rounded(request.think * 1000)
  end
  return clock.rounded(math.max(0, request.start - before.stop) * 1000)
end

---@param source kvr.Source
function M.rows(source, options)
  local state = { base = 0, heads = {} }
  local list, at, session, ids = {}, 0, nil, nil
  local function next_session()
    session = source:object()
    if not session then return false end
    source:text_of(session.id, "id")
    if session.hash_id_scope ~= "local" then
      source:fail("hash_id_scope", "is %s; only \"local\" is known",
        cjson.encode(session.hash_id_scope))
    end
    local block_tokens = source:whole(session.block_size, "block_size", 1)
    list, at = requests_of(source, session, block_tokens), 0
    local head_tokens = source:whole(session.tool_tokens, "tool_tokens", 0)
      + source:whole(session.system_tokens, "system_tokens", 0)
    local head = options["shared-heads"]
      and blocks.of_tokens(head_tokens, block_tokens, false) or 0
    local first = {}
    for _, request in ipairs(list) do
      if request.main then
        first = request.runs
        break
      end
    end
    ids = ids_of(state, session, first, head)
    return true
  end
  return function()
    while at >= #list do
      if ids then ids.close() end
      ids = nil
      if not next_session() then return nil end
    end
    at = at + 1
    local request = list[at]
    local row = {
      session = session.id, turn = at, think_ms = think_ms(list[at - 1], request),
      input_tokens = request.input, output_tokens = request.output,
      block_tokens = session.block_size, blocks = {},
    }
    for _, run in ipairs(request.runs) do ids.move(row.blocks, run[1], run[2]) end
    return row
  end
end

return M
