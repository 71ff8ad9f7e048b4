-- Times of traces.
local M = {}

---Milliseconds, to the nanosecond: what a row holds.
function M.rounded(ms) return math.floor(ms * 1e6 + 0.5) / 1e6 end

-- Days since 1970-01-01 of a date of the Gregorian calendar.
local function days(year, month, day)
  if month <= 2 then year, month = year - 1, month + 12 end
  return 365 * year + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
    + math.floor((153 * (month - 3) + 2) / 5) + day - 1 - 719468
end

---A wall time like 2023-11-16 18:15:46.6805900 or 2026-06-01T05:40:20.151Z: whole seconds since
---1970, and the fraction of the second in ms, since one number does not hold both to 100 ns. Nil
---when it is no such time.
---@return integer? seconds, number? ms
function M.wall(text)
  local year, month, day, hour, minute, second, rest =
    text:match("^(%d%d%d%d)%-(%d%d)%-(%d%d)[ T](%d%d):(%d%d):(%d%d)(.*)$")
  local fraction = rest and (rest:match("^%.(%d+)Z?$") or rest:match("^Z?$") and "0")
  if not fraction then return nil end
  local date = days(tonumber(year), tonumber(month), tonumber(day))
  return date * 86400 + hour * 3600 + minute * 60 + second, tonumber("0." .. fraction) * 1000
end

return M
