-- How many replicas served the three hottest conversations: the mean over the three, and their
-- share of all requests.
local HOTTEST = 3

return function()
  local total, count, by_replica = 0, {}, {}

  local function see(record)
    if record.measured == 0 then return end
    local session, replica = tonumber(record.session), tonumber(record.replica)
    total = total + 1
    count[session] = (count[session] or 0) + 1
    by_replica[session] = by_replica[session] or {}
    by_replica[session][replica] = (by_replica[session][replica] or 0) + 1
  end

  local function finish()
    local sessions = {}
    for session in pairs(count) do sessions[#sessions + 1] = session end
    table.sort(sessions, function(a, b)
      return count[a] > count[b] or count[a] == count[b] and a < b
    end)
    local replicas, requests, n = 0, 0, math.min(HOTTEST, #sessions)
    for i = 1, n do
      for _ in pairs(by_replica[sessions[i]]) do replicas = replicas + 1 end
      requests = requests + count[sessions[i]]
    end
    return { replicas = replicas / n, share = requests / total }
  end
  return see, finish
end
