-- Fields of each row read from standard input, one row a line; "-" where it has none or no number
-- is known. For shell scripts:
--   luajit row_fields.lua FIELD [FIELD ...]
local cjson = require("cjson")

for line in io.lines() do
  local row, out = cjson.decode(line), {}
  for i, field in ipairs(arg) do
    local value = row[field]
    out[i] = (value == nil or value == cjson.null) and "-" or tostring(value)
  end
  print(table.concat(out, " "))
end
