-- What a run looks like over time, in buckets of ten seconds by when requests were sent: how many,
-- their prompt tokens and how many of these were cached, and how many each replica got; and in each
-- interval of drifting keys the 99th percentile of the time to the first token, of all requests.
local stats = require("kvroute.stats")

local BUCKET_NS, NOWHERE = 10e9, 65535

return function(cell)
  local out = { requests = {}, prompt = {}, cached = {}, by = {}, p99_ms = {} }
  local interval_s, ttft = cell.measure.warmup_s, {}
  for i = 1, cell.fleet.replicas do out.by[i] = {} end

  -- Empty buckets are there, too.
  local function extend(to)
    for i = #out.requests + 1, to do
      out.requests[i], out.prompt[i], out.cached[i] = 0, 0, 0
      for _, counts in ipairs(out.by) do counts[i] = 0 end
    end
  end

  local function see(record)
    local sent_ns = tonumber(record.sent_ns)
    local i = math.floor(sent_ns / BUCKET_NS) + 1
    local interval = math.floor(sent_ns / 1e9 / interval_s) + 1
    extend(i)
    out.requests[i] = out.requests[i] + 1
    out.prompt[i] = out.prompt[i] + record.prompt_tokens
    out.cached[i] = out.cached[i] + record.cached_tokens
    if record.replica ~= NOWHERE then
      local counts = out.by[record.replica + 1]
      counts[i] = counts[i] + 1
    end
    for n = #ttft + 1, interval do ttft[n] = {} end
    local all = ttft[interval]
    all[#all + 1] = record.ttft_ms == record.ttft_ms and record.ttft_ms or math.huge
  end

  local function finish()
    for n, all in ipairs(ttft) do out.p99_ms[n] = stats.quantile(all, 0.99) end
    return out
  end
  return see, finish
end
