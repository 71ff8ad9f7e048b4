-- Nearest-rank quantiles of one field of rows read from standard input:
--   luajit quantiles.lua FIELD SHARE [SHARE ...]
local cjson = require("cjson")

local field = arg[1]
local values = {}
for line in io.lines() do
  local value = cjson.decode(line)[field]
  if type(value) == "number" then values[#values + 1] = value end
end
assert(#values > 0, "no row has a number in " .. tostring(field))
table.sort(values)
local out = {}
for i = 2, #arg do
  out[#out + 1] = values[math.max(1, math.ceil(#values * tonumber(arg[i])))]
end
print(table.concat(out, " "))
