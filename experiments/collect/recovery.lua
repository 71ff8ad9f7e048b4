-- Requests by when they were sent, in buckets of five seconds since the start: how many, how many
-- good, and how many each replica got; and what was lost, moved, or outside the limits in all.
local BUCKET_NS = 5e9
local SUCCESS, DROPPED = 0, 2
local NOWHERE = 65535

return function(cell)
  local out = { sent = {}, good = {}, by = {}, lost = 0, outside = 0, moved = 0 }
  for i = 1, cell.fleet.replicas do out.by[i] = {} end

  -- Empty ones are there, too.
  local function extend(to)
    for i = #out.sent + 1, to do
      out.sent[i], out.good[i] = 0, 0
      for _, counts in ipairs(out.by) do counts[i] = 0 end
    end
  end

  local function count(record)
    if record.moves > 0 then out.moved = out.moved + 1 end
    if record.outcome == DROPPED then out.lost = out.lost + 1 end
    if record.outcome == SUCCESS and record.good == 0 then out.outside = out.outside + 1 end
  end

  local function see(record)
    local i = math.floor(tonumber(record.sent_ns) / BUCKET_NS) + 1
    extend(i)
    out.sent[i] = out.sent[i] + 1
    if record.good == 1 then out.good[i] = out.good[i] + 1 end
    if record.replica ~= NOWHERE then
      local counts = out.by[record.replica + 1]
      counts[i] = counts[i] + 1
    end
    if record.measured == 1 then count(record) end
  end
  return see, function() return out end
end
