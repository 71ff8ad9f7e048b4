-- Which replica served which key how often, over the whole run: by key, and by replica from 1.
local NOWHERE = 65535

return function(cell)
  local replicas, keys = cell.fleet.replicas or 30, {}
  local function see(record)
    if record.replica == NOWHERE then return end
    local key, replica = tonumber(record.session), record.replica + 1
    for new = #keys + 1, key do
      keys[new] = {}
      for i = 1, replicas do keys[new][i] = 0 end
    end
    keys[key][replica] = keys[key][replica] + 1
  end
  return see, function() return { keys = keys } end
end
