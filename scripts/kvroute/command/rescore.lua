-- kvroute rescore
local argparse = require("argparse")
local command = require("kvroute.command")
local rescore = require("kvroute.rescore")

local function parser_of()
  local parser = argparse("kvroute rescore",
    "Judges recorded cells anew from their rows (kvroute run --rows keeps them), and shows what "
    .. "changes.\nExit status: 0 done, 1 rows do not give what was recorded, 2 asked wrongly.")
  parser:argument("path", "a cell, or a folder of cells"):args("+")
  parser:flag("-w --write", "write drift, backlog and flags back, if all rows give what was "
    .. "recorded")
  return parser
end

---@param context kvr.CommandContext
---@return integer
return function(context)
  return command.run("rescore", parser_of(), context, function(arguments)
    local text, ok = rescore.run(arguments.path, arguments.write)
    io.write(text)
    return ok and command.OK or command.FAILED
  end)
end
