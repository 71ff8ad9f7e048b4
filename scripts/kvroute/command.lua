-- What commands written in Lua share: exit statuses, and a failure as one line.
local M = { OK = 0, FAILED = 1, USAGE = 2 }

---@class kvr.CommandContext what core/cli/run_words.c hands in
---@field words string[] of the command line
---@field binary string path of this program
---@field policies string folder
---@field build kvr.Build

---Help as that of the commands in C: within 100 columns, descriptions from the 34th, all defaults.
---@param parser table of argparse
---@return table parser
function M.dressed(parser)
  for _, option in ipairs(parser._options) do
    -- It shows defaults that are texts.
    if type(option._init) == "number" then option:default(("%.14g"):format(option._init)) end
  end
  return parser:usage_max_width(100):help_max_width(100):help_usage_margin(2)
    :help_description_margin(33)
end

---@param name string
---@param parser table of argparse
---@param context kvr.CommandContext
---@param run fun(arguments: table): integer
---@return integer # exit status
function M.run(name, parser, context, run)
  local parsed, arguments = M.dressed(parser):pparse(context.words)
  if not parsed then
    io.stderr:write(("kvroute %s: %s (see --help)\n"):format(name, arguments))
    return M.USAGE
  end
  local ok, status = xpcall(run, function(why)
    if type(why) == "table" then return why.reason end
    return os.getenv("KVR_TRACEBACK") and debug.traceback(why, 2) or why
  end, arguments)
  if ok then return status end
  io.stderr:write(("kvroute %s: %s\n"):format(name, tostring(status)))
  return M.FAILED
end

---"NAME=VALUE" of an option.
---@param text string
---@param option string
---@return {name: string, value: string}
function M.setting(text, option)
  local name, value = text:match("^([%w_.]+)=(.*)$")
  if not name then error(("%s is NAME=VALUE, not %s"):format(option, text), 0) end
  return { name = name, value = value }
end

return M
