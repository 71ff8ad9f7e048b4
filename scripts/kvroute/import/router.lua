-- Rows of a router, live or simulated (core/router/README.md), as it writes them with rows.blocks:
-- what came when, of which key, and which blocks prompts have in common. No text is needed. Rows
-- stand in the order of their ends, so all are held and sorted.
--
-- With index.wide_after the blocks behind that offset are wide ones. Each becomes as many blocks of
-- the ordinary size, with numbers of their own: prompts then share just what their rows say.
local clock = require("kvroute.import.clock")

local M = {
  summary = "rows of a router, written with rows.blocks",
  options = { { "block-bytes", "N", "index.block_bytes, where rows do not say", 64 },
    { "wide-after", "N", "index.wide_after, where rows do not say", 0 },
    { "models", nil, "with the model that each has named" } },
}

local WIDE = 256         -- bytes of a wide block: KVR_PROMPT_WIDE_BYTES
local WIDE_FROM = 2 ^ 51 -- numbers of what wide blocks become
local BLOCKS_MAX = 524288 -- KVR_PROMPT_BLOCKS_MAX

-- Wide blocks as ordinary ones.
local function narrowed(source, runs, size, wide_after)
  local out, parts, left = {}, WIDE / size, math.ceil(wide_after / size)
  if parts % 1 ~= 0 then
    source:fail("wide_after", "%d bytes of a wide block are no multiple of block_bytes, %d", WIDE,
      size)
  end
  for _, run in ipairs(runs) do
    local first, count = run[1], run[2]
    local ordinary = math.min(count, left)
    left = left - ordinary
    if ordinary > 0 then out[#out + 1] = { first, ordinary } end
    if count > ordinary then
      out[#out + 1] = { WIDE_FROM + (first + ordinary) * parts, (count - ordinary) * parts }
    end
  end
  return out
end

-- How many blocks a prompt of so many bytes has.
local function blocks_of(bytes, size, wide_after)
  local ordinary = wide_after > 0 and math.ceil(wide_after / size) or math.huge
  local all = math.floor(bytes / size)
  if all <= ordinary then return all end
  return ordinary + math.floor((bytes - ordinary * size) / WIDE)
end

-- Blocks that are fewer than the prompt has are other blocks than these.
local function check_blocks(source, row, size, wide_after)
  local due = blocks_of(row.prompt_bytes, size, wide_after)
  if row.blocks > 0 and row.blocks < math.min(due, BLOCKS_MAX) then
    source:fail("blocks", "%d for a prompt of %d bytes, which has %d of %d bytes%s: this router "
      .. "had another index.wide_after or index.block_bytes, see --wide-after and --block-bytes",
      row.blocks, row.prompt_bytes, due, size,
      wide_after > 0 and (", wide after %d"):format(wide_after) or "")
  end
end

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
  local size = row.block_bytes or options["block-bytes"]
  local wide_after = row.wide_after or options["wide-after"]
  local bytes = math.floor(source:number_of(row.prompt_bytes, "prompt_bytes", 1))
  source:whole(size, "block_bytes", 1)
  source:whole(wide_after, "wide_after", 0)
  if runs then check_blocks(source, row, size, wide_after) end
  if runs and wide_after > 0 then runs = narrowed(source, runs, size, wide_after) end
  return {
    at = source:number_of(row.started_ms, "started_ms", 0),
    sequence = source:whole(row.sequence, "sequence", 1),
    row = {
      session = row.session, tenant = row.routing_key, turn = row.turn,
      model = options.models and (row.model or "") or nil,
      input_tokens = tokens_of(source, row),
      input_bytes = bytes,
      output_tokens = row.output_tokens or row.max_tokens or 0,
      block_bytes = runs and size, blocks = runs,
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
