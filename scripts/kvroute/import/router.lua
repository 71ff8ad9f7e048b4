-- Rows of a router, live or simulated (core/router/README.md), as it writes them with rows.blocks:
-- what came when, of which key, and which blocks prompts have in common. No text is needed. Rows
-- stand in the order of their ends, so all are held and sorted.
local clock = require("kvroute.import.clock")

local M = {
  summary = "rows of a router, written with rows.blocks",
  options = { { "block-bytes", "N", "index.block_bytes of that router", 64 },
    { "models", nil, "with the model that each has named" } },
}

local function runs_of(source, row)
  if row.blocks == 0 then return nil end
  if row.chain == nil then
    source:fail("chain", "is missing: the router needs rows.blocks = true")
  end
  local runs = {}
  for i, run in ipairs(source:list_of(row.chain, "chain")) do
    source:list_of(run, "chain")
    runs[i] = { source:whole(run[1], "chain", 1), source:whole(run[2], "chain", 1) }
  end
  return runs
end

-- What an engine did not count the router has estimated.
local function tokens_of(source, row)
  local tokens = row.prompt_tokens or source:number_of(row.estimated_tokens, "estimated_tokens", 0)
  return math.max(1, math.floor(tokens + 0.5))
end

local function request_of(source, row, options)
  local runs = runs_of(source, row)
  return {
    at = source:number_of(row.started_ms, "started_ms", 0),
    sequence = source:whole(row.sequence, "sequence", 1),
    row = {
      session = row.session, tenant = row.routing_key, turn = row.turn,
      model = options.models and (row.model or "") or nil,
      input_tokens = tokens_of(source, row),
      input_bytes = math.floor(source:number_of(row.prompt_bytes, "prompt_bytes", 1)),
      output_tokens = row.output_tokens or row.max_tokens or 0,
      block_bytes = runs and options["block-bytes"], blocks = runs,
    },
  }
end

-- Two processes number their blocks each for itself.
local function check_process(all)
  local seen = {}
  for _, each in ipairs(all) do
    if seen[each.sequence] then
      error(("two rows have the sequence %d: these are rows of two processes"):format(
        each.sequence), 0)
    end
    seen[each.sequence] = true
  end
end

local function read(source, options)
  local all = {}
  while true do
    local row = source:object()
    if not row then break end
    -- What is not routed by policy, or was refused before it was read, asks nothing of a policy.
    if row.endpoint ~= "other" and (row.prompt_bytes or 0) > 0 then
      all[#all + 1] = request_of(source, row, options)
    end
  end
  check_process(all)
  table.sort(all, function(a, b)
    if a.at ~= b.at then return a.at < b.at end
    return a.sequence < b.sequence
  end)
  return all
end

---@param source kvr.Source
function M.rows(source, options)
  local all, n
  return function()
    if not all then all, n = read(source, options), 0 end
    n = n + 1
    if not all[n] then return nil end
    all[n].row.at_ms = clock.rounded(all[n].at - all[1].at)
    return all[n].row
  end
end

return M
