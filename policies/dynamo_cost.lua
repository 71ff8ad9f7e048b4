-- The worker selector of NVIDIA Dynamo, in tokens where it counts blocks: the least
--   cost = prefill_load_scale x max(0, pending prefill + prompt - overlap_credit x match)
--        + tokens of the blocks of all prompts in flight and of this one, each block once
--        + request_tokens x requests in flight.
-- Ties are random. With a temperature T the pick is random, in proportion to
-- exp(-cost / (T x (greatest cost - least cost))).
--
-- As by Dynamo's defaults, answers do not count, and the credit does not decay with load. Left out:
-- caches below the GPU.

---@type kvr.Policy
local P = {
  api = 1,
  name = "dynamo_cost",
  needs = { "match", "active" },
  params = {
    prefill_load_scale = 1, -- >= 0
    overlap_credit = 1,     -- >= 0
    request_tokens = 0,     -- >= 0
    temperature = 0,        -- >= 0
  },
}

local scale, credit, request_tokens, temperature

function P.init(params)
  scale, credit = params.prefill_load_scale, params.overlap_credit
  request_tokens, temperature = params.request_tokens, params.temperature
  assert(scale >= 0 and credit >= 0, "prefill_load_scale and overlap_credit must be 0 or more")
  assert(request_tokens >= 0 and temperature >= 0,
    "request_tokens and temperature must be 0 or more")
end

local function cost(request, per_block, row)
  local prefill = row.uncached_tokens + request.prompt_tokens - credit * row.match_tokens
  local blocks = row.active_blocks + request.chain_len - row.active_match_blocks
  return scale * math.max(0, prefill) + per_block * blocks + request_tokens * row.in_flight
end

-- Of being drawn, in parts of that of the least cost.
local function chance(above, range)
  if above == 0 then return 1 end
  return range > 0 and math.exp(-above / range) or 0
end

function P.pick(request, view)
  local least, greatest, per_block = math.huge, 0, 0 -- tokens of a block
  if request.prompt_bytes > 0 then
    per_block = request.block_bytes * request.prompt_tokens / request.prompt_bytes
  end
  for i = 0, view.count - 1 do
    if view[i].available then
      local c = cost(request, per_block, view[i])
      least, greatest = math.min(least, c), math.max(greatest, c)
    end
  end
  local range, total = temperature * (greatest - least), 0
  for i = 0, view.count - 1 do
    if view[i].available then
      total = total + chance(cost(request, per_block, view[i]) - least, range)
    end
  end
  local left, drawn = math.random() * total, nil
  for i = 0, view.count - 1 do
    if view[i].available and left >= 0 then
      local part = chance(cost(request, per_block, view[i]) - least, range)
      if part > 0 then drawn, left = i, left - part end
    end
  end
  return drawn, "dynamo_cost"
end

return P
