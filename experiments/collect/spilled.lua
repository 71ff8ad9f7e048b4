-- How the turns that the spill rule moved fared, beside those that kept their replica.
local SUCCESS = 0

return function()
  local out = { spilled = 0, spilled_good = 0, kept = 0, kept_good = 0 }
  local function see(record)
    if record.measured == 0 or record.outcome ~= SUCCESS then return end
    local kind = record.preferred_reason ~= 0 and "spilled" or "kept"
    out[kind] = out[kind] + 1
    out[kind .. "_good"] = out[kind .. "_good"] + record.good
  end
  return see, function() return out end
end
