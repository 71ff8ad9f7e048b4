-- kvroute compare
local argparse = require("argparse")
local command = require("kvroute.command")
local compare = require("kvroute.compare")
local evidence = require("kvroute.evidence")
local json = require("kvroute.json")
local schema = require("kvroute.schema")

local function parser_of()
  local parser = argparse("kvroute compare",
    "Holds recorded cells against each other, policy against policy: medians of repetitions "
    .. "with\ntheir ranges. Refuses cells that differ in anything but policy, seed and axes, and "
    .. "says\nin what. Exit status: 0 compared, 1 refused or failed, 2 asked wrongly.")
  parser:argument("path", "a cell, or a folder of cells"):args("+")
  parser:option("--baseline", "the policy that others are held against (the plainest)")
  parser:option("--axis", "one more field that may differ, such as turns"):count("*")
    :argname("NAME")
  parser:option("--where", "only these cells, such as skew=1.4 or build=3f2a"):count("*")
    :argname("NAME=VALUE")
  parser:option("--metrics", "with commas between; the first is compared"):argname("NAME,...")
  parser:option("--matrix", "one metric of all policies in one table"):argname("NAME")
  parser:option("--ignore", "a flag that shall exclude nothing"):count("*"):argname("FLAG")
  parser:mutex(parser:flag("--json", "everything as JSON"),
    parser:flag("--csv", "a row a policy and place"))
  return parser
end

local function list(text)
  local out = {}
  for item in text:gmatch("[^,]+") do out[#out + 1] = item end
  return out
end

local function options_of(arguments)
  local where, ignore = {}, {}
  for i, text in ipairs(arguments.where) do where[i] = command.setting(text, "--where") end
  for _, name in ipairs(arguments.ignore) do
    if not evidence.NAMES[name] then
      error(("--ignore: there is no flag %s; there are %s"):format(name,
        table.concat(schema.names(evidence.NAMES), ", ")), 0)
    end
    ignore[name] = true
  end
  return {
    baseline = arguments.baseline, axes = arguments.axis, where = where, ignore = ignore,
    metrics = arguments.metrics and list(arguments.metrics), matrix = arguments.matrix,
  }
end

---@param context kvr.CommandContext
---@return integer
return function(context)
  return command.run("compare", parser_of(), context, function(arguments)
    local comparison = compare.read(arguments.path, options_of(arguments))
    if arguments.json then
      io.write(json.encode(compare.data(comparison), true), "\n")
    elseif #comparison.refusals > 0 then
      io.stderr:write(compare.text(comparison))
    elseif arguments.csv then
      io.write(compare.csv(comparison))
    else
      io.write(compare.text(comparison))
    end
    return #comparison.refusals > 0 and command.FAILED or command.OK
  end)
end
