-- kvroute import
local import = require("kvroute.import")

---@param context kvr.CommandContext
---@return integer
return function(context)
  return import.main(context.words, "kvroute import")
end
