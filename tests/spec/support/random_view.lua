-- Random views, written straight into a fleet's picture: idle and swamped replicas, unread signals,
-- drained ones, equal ones, none at all, and numbers at the end of their range.

local ffi = require("ffi")

local MAX_CHAIN = 40

local chain = ffi.new("struct kvr_block_key[?]", MAX_CHAIN)

local function chance(p)
  return math.random() < p
end

local function or_unread(value)
  return chance(0.3) and 0 / 0 or value
end

local function write_row(row)
  row.available = chance(0.8)
  row.weight = chance(0.7) and 1 or math.random(1, 40) / 10
  row.ramp = chance(0.8) and 1 or math.random(1, 10) / 10
  row.in_flight = chance(0.5) and math.random(0, 3) or math.random(0, 300)
  row.capacity = chance(0.5) and math.huge or math.random(1, 300)
  row.uncached_tokens = chance(0.4) and 0 or math.random(0, 200000)
  row.assigned = chance(0.2) and 1 or 0
  row.match_blocks = chance(0.5) and 0 or math.random(0, 5)
  row.match_tokens = 16 * row.match_blocks
  row.active_tokens = row.in_flight * 700
  row.active_blocks, row.active_match_blocks = 40 * (row.in_flight % 1000), row.match_blocks
  row.engine_hit_rate = or_unread(math.random())
  row.prefill_tokens_per_s = or_unread(math.random(1, 50000))
  row.running = or_unread(math.random(0, 300))
  row.waiting = or_unread(math.random(0, 300))
  row.kv_usage = or_unread(math.random())
  row.ttft_ms = or_unread(math.random(1, 10000))
  row.error_rate = math.random()
  row.key_age_ms = or_unread(math.random(0, 300000))
  row.output_tokens = or_unread(math.random(1, 2000))
  row.token_ms = or_unread(math.random(1, 100))
  row.recent_uncached_tokens = chance(0.3) and 0 or math.random(0, 1000000)
  if chance(0.02) then row.in_flight, row.uncached_tokens = 4294967295, 1e300 end
  if not row.available and chance(0.5) then row.administrative = 1 end
end

local function write_request(request)
  request.serial = math.random(0, 4294967295)
  request.session = chance(0.2) and 0 or math.random(1, 4294967295)
  request.routing_key = chance(0.2) and 0 or math.random(1, 4294967295)
  request.turn = math.random(0, 9)
  request.attempt = chance(0.9) and 0 or math.random(1, 2)
  request.prompt_tokens = math.random(0, 100000)
  request.chain = chain
  request.chain_len = chance(0.3) and math.random(0, 15) or math.random(16, MAX_CHAIN)
  for i = 0, request.chain_len - 1 do
    chain[i].key = math.random(0, 4294967295)
  end
end

---Fills the picture of `f` from math.random.
---@return integer count rows
return function(f, max_rows)
  local count = chance(0.05) and max_rows or math.random(0, 10)
  local all_equal = chance(0.1)
  for i = 0, count - 1 do
    local row = f:idle_row(i)
    write_row(row)
    if all_equal and i > 0 then
      ffi.copy(row, f.picture.rows[0], ffi.sizeof("struct kvr_replica_view"))
      row.id, row.name = i, i + 1
    end
  end
  write_request(f:plain_request())
  f:complete(count)
  f.picture.view.planned = chance(0.5) and 1 or 0
  return count
end
