-- How right the index was, by how long ago the conversation was last asked for: predicted and
-- honoured tokens, and what was predicted and not there.
local EDGES_S = { 1, 2, 5, 10, 30, 60, 120 } -- upper ends; the last bucket has none
local BLOCK_BYTES, NS = 64, 1e9

return function()
  local last, buckets = {}, {}
  for i = 1, #EDGES_S + 2 do
    buckets[i] = { requests = 0, predicted = 0, honoured = 0, over = 0, over_tokens = 0 }
  end

  local function bucket_of(session, sent_ns)
    local before = last[session]
    if not before then return buckets[1] end
    for i, edge in ipairs(EDGES_S) do
      if sent_ns - before < edge * NS then return buckets[i + 1] end
    end
    return buckets[#buckets]
  end

  local function see(record)
    local session, sent_ns = tonumber(record.session), tonumber(record.sent_ns)
    local bucket = bucket_of(session, sent_ns)
    last[session] = math.max(last[session] or 0, sent_ns)
    if record.measured == 0 or record.match_blocks == 0 then return end
    local predicted = record.match_blocks * BLOCK_BYTES * record.prompt_tokens
      / record.prompt_bytes
    bucket.requests = bucket.requests + 1
    bucket.predicted = bucket.predicted + predicted
    bucket.honoured = bucket.honoured + math.min(predicted, record.cached_tokens)
    -- A match ends at a block of the engine, so less than one of 16 tokens is no error.
    if predicted - record.cached_tokens >= 16 then
      bucket.over = bucket.over + 1
      bucket.over_tokens = bucket.over_tokens + predicted - record.cached_tokens
    end
  end
  return see, function() return { edges_s = EDGES_S, buckets = buckets } end
end
