-- The worker selector of NVIDIA Dynamo, in tokens where it counts blocks: the least
--   cost = prefill_load_scale x max(0, pending prefill + prompt - overlap_credit x match)
--        + tokens of the prompts in flight, with this one
--        + request_tokens x requests in flight.
-- Ties are random. With a temperature T the pick is random, in proportion to
-- exp(-cost / (T x (greatest cost - least cost))).
--
-- Blocks that prompts in flight share count for each of them, and answers do not count, as in
-- Dynamo with router_assume_kv_reuse and router_track_output_blocks off. Left out: caches below
-- the GPU, and the decay of the credit with load, which its defaults leave off.

---@type kvr.Policy
local P = {
  api = 1,
  name = "dynamo_cost",
  needs = { "match" },
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

local function cost(prompt, row)
  return scale * math.max(0, row.uncached_tokens + prompt - credit * row.match_tokens)
    + row.active_tokens + prompt + request_tokens * row.in_flight
end

-- Of being drawn, in parts of that of the least cost.
local function chance(above, range)
  if above == 0 then return 1 end
  return range > 0 and math.exp(-above / range) or 0
end

function P.pick(request, view)
  local prompt, least, greatest = request.prompt_tokens, math.huge, 0
  for i = 0, view.count - 1 do
    if view[i].available then
      local c = cost(prompt, view[i])
      least, greatest = math.min(least, c), math.max(greatest, c)
    end
  end
  local range, total = temperature * (greatest - least), 0
  for i = 0, view.count - 1 do
    if view[i].available then total = total + chance(cost(prompt, view[i]) - least, range) end
  end
  local left, drawn = math.random() * total, nil
  for i = 0, view.count - 1 do
    if view[i].available and left >= 0 then
      local part = chance(cost(prompt, view[i]) - least, range)
      if part > 0 then drawn, left = i, left - part end
    end
  end
  return drawn, "dynamo_cost"
end

return P
