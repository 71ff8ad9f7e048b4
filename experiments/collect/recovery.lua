-- Requests by when they were sent, in buckets of five seconds since the start, by replica, and how
-- many were good or lost; what becomes of an answer is counted where its request was sent.
local BUCKET_NS = 5e9
local SUCCESS, DROPPED = 0, 2
local NOWHERE = 65535

return function(cell)
  local buckets, replicas = {}, cell.fleet.replicas
  local out = { buckets = buckets, lost = 0, outside = 0, moved = 0, measured = 0 }

  local function bucket_of(record)
    local i = math.floor(tonumber(record.sent_ns) / BUCKET_NS) + 1
    for j = #buckets + 1, i do
      buckets[j] = { sent = 0, good = 0, by = {} }
      for k = 1, replicas do buckets[j].by[k] = 0 end
    end
    return buckets[i]
  end

  local function see(record)
    local bucket = bucket_of(record)
    bucket.sent = bucket.sent + 1
    if record.good == 1 then bucket.good = bucket.good + 1 end
    if record.replica ~= NOWHERE then
      bucket.by[record.replica + 1] = bucket.by[record.replica + 1] + 1
    end
    if record.measured == 1 then
      out.measured = out.measured + 1
      if record.moves > 0 then out.moved = out.moved + 1 end
      if record.outcome == DROPPED then out.lost = out.lost + 1 end
      if record.outcome == SUCCESS and record.good == 0 then out.outside = out.outside + 1 end
    end
  end
  return see, function() return out end
end
