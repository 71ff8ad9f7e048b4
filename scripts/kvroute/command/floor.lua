-- kvroute floor
local argparse = require("argparse")
local command = require("kvroute.command")
local fleet = require("kvroute.fleet")
local floor = require("kvroute.floor")
local json = require("kvroute.json")
local policy = require("kvroute.policy")

-- A number of at least that.
local function from(least)
  return function(text)
    local value = tonumber(text)
    return value and value >= least and value < math.huge and value or nil
  end
end

local function parser_of()
  local parser = argparse("kvroute floor",
    "Measures the least latency of engines: one request at a time, straight at each, text that "
    .. "none has\nseen; and sets the limits of a good request to a multiple of the medians.\n"
    .. "Exit status: 0 measured, 1 this is no floor or it failed, 2 asked wrongly.")
  parser:argument("url", "of each engine, without a router between"):args("*")
  parser:option("--profile", "emulated engines under virtual time instead"):argname("NAME|FILE")
  parser:option("--replicas", "of these", "1"):convert(from(1)):argname("N")
  parser:option("--requests", "to each", tostring(floor.REQUESTS)):convert(from(1)):argname("N")
  parser:option("--factor", "of the floor", tostring(floor.FACTOR)):convert(from(0))
    :argname("X")
  parser:option("--load", "one more argument of kvroute load, such as --load=--model=NAME")
    :count("*"):argname("WORD")
  parser:flag("--json", "as JSON")
  return parser
end

local function measure(arguments, context)
  if arguments.profile then
    policy.folder = context.policies
    return floor.simulated(fleet.simulated({ profile = arguments.profile }), arguments.replicas,
      arguments.requests)
  end
  -- No run may meet the text of another in an engine's cache.
  return floor.live(context.binary, arguments.url, arguments.requests, arguments.load,
    os.time() * 100)
end

---@param context kvr.CommandContext
---@return integer
return function(context)
  return command.run("floor", parser_of(), context, function(arguments)
    if (#arguments.url > 0) == (arguments.profile ~= nil) then
      io.stderr:write("kvroute floor: either URLs or --profile (see --help)\n")
      return command.USAGE
    end
    local found, why = floor.judge(measure(arguments, context), arguments.factor)
    if not found then error(why, 0) end
    io.write(arguments.json and json.encode(floor.data(found), true) .. "\n" or floor.text(found))
    return command.OK
  end)
end
