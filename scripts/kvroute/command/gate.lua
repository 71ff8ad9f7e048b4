-- kvroute gate
local argparse = require("argparse")
local cell = require("kvroute.cell")
local command = require("kvroute.command")
local gate = require("kvroute.gate")
local gate_file = require("kvroute.gate_file")
local json = require("kvroute.json")
local policy = require("kvroute.policy")
local store = require("kvroute.store")

local KEEP = 3

local function parser_of()
  local parser = argparse("kvroute gate",
    "Replays recorded traffic through a candidate policy and through what it would replace, on\n"
    .. "emulated engines, at a load below and a load near the knee of the latter; and answers\n"
    .. "enable or keep. The plan of a candidate that needs one is made from the rows before those\n"
    .. "that are judged. A higher hit rate alone never enables.\n"
    .. "Exit status: 0 enable, 3 keep, 1 failed, 2 asked wrongly.")
  parser:option("--rows", "of a router, written with rows.blocks; .gz too"):argname("FILE")
    :count("+")
  parser:option("--candidate", "a policy"):argname("NAME"):count(1)
  parser:option("--against --baseline", "what it would replace; best: the best of all that need "
    .. "no plan, on these rows", "p2c"):argname("NAME")
  parser:option("--profile", "of the emulated engines: a name or a file"):argname("NAME"):count(1)
  parser:option("--replicas", "so many; the profile's"):argname("N"):convert(tonumber)
  parser:option("--slots", "of the plan, for each replica"):argname("N"):convert(tonumber)
  parser:option("--q-cap", "of the plan: most requests a second of one copy"):argname("RATE")
    :convert(tonumber)
  parser:option("--param", "of the candidate"):argname("NAME=VALUE"):count("*")
  parser:option("--against-param", "of the baseline"):argname("NAME=VALUE"):count("*")
  parser:option("--router", "a setting of the router, such as ring_vnodes=4")
    :argname("NAME=VALUE"):count("*")
  parser:option("--slo-ttft", "most p99 of the time to first token", 3500):argname("MS")
    :convert(tonumber)
  parser:option("--slo-token", "most time for each further token of an answer without streaming, "
    .. "for the guard; as near the knee"):argname("MS"):convert(tonumber)
  parser:option("--failures", "most failures, of the requests", 0.05):argname("SHARE")
    :convert(tonumber)
  parser:option("--gain", "least part by which p99 must fall", 0.05):argname("SHARE")
    :convert(tonumber)
  parser:option("--judged", "the last part of the rows, which is judged", 0.25):argname("SHARE")
    :convert(tonumber)
  parser:option("--active-margin", "part of the known traffic that may go unknown before a guard "
    .. "acts", 0.2):argname("SHARE"):convert(tonumber)
  parser:option("--policies", "folder of policies, as a router's policies_dir; the shipped ones")
    :argname("DIR")
  parser:option("--seeds", "repetitions", 5):argname("N"):convert(tonumber)
  parser:option("--seed", "the first", 1):argname("N"):convert(tonumber)
  parser:option("--format", "of the rows, as kvroute import has it", "router"):argname("NAME")
  parser:option("--out", "write the envelope: what a router's guard keeps to"):argname("FILE")
  parser:option("--cells", "folder of what was run", ".cells"):argname("DIR")
  parser:option("-j --jobs", "in parallel", 2):argname("N"):convert(tonumber)
  parser:flag("--json", "the result as JSON")
  return parser
end

local function pairs_of(list, option)
  local out = {}
  for _, text in ipairs(list) do
    local each = command.setting(text, option)
    out[each.name] = tonumber(each.value) or each.value
    if each.value == "true" or each.value == "false" then out[each.name] = each.value == "true" end
  end
  return out
end

local shares = { failures = true, gain = true, judged = true, active_margin = true }
local counts = { replicas = true, slots = true, seeds = true, jobs = true }

-- What is wrong with the numbers, or nil.
local function complaint(arguments)
  for name in pairs(shares) do
    local value = arguments[name]
    if not (value and value >= 0 and value < 1) then
      return ("--%s is a share from 0 to below 1"):format((name:gsub("_", "-")))
    end
  end
  if arguments.judged == 0 then return "--judged is above 0" end
  for name in pairs(counts) do
    local value = arguments[name]
    if value and not (value >= 1 and value % 1 == 0) then
      return ("--%s is a whole number above 0"):format(name)
    end
  end
  if arguments.seeds < 3 then return "--seeds is 3 or more: fewer have no spread" end
  if not (arguments.slo_ttft and arguments.slo_ttft > 0) then return "--slo-ttft is above 0" end
  local token = arguments.slo_token
  if token and (token < 0 or token ~= token) then return "--slo-token is 0 or more" end
  if arguments.against == "best" and #arguments.against_param > 0 then
    return "--against-param is for a baseline by name"
  end
end

local function options_of(arguments, context)
  local router = pairs_of(arguments.router, "--router")
  router.plan_slots, router.plan_q_cap = arguments.slots, arguments.q_cap
  return {
    rows = arguments.rows, format = arguments.format,
    candidate = { arguments.candidate, params = pairs_of(arguments.param, "--param") },
    against = arguments.against ~= "best" and { arguments.against,
      params = pairs_of(arguments.against_param, "--against-param") } or nil,
    profile = arguments.profile, replicas = arguments.replicas, router = router,
    slo_ttft_ms = arguments.slo_ttft, token_ms = arguments.slo_token,
    failed = arguments.failures, gain = arguments.gain,
    judged = arguments.judged, seeds = arguments.seeds, first_seed = arguments.seed, drain_s = 30,
    cells = arguments.cells, binary = context.binary, jobs = arguments.jobs,
    say = function(text) io.stderr:write(text, "\n") end,
  }
end

---@param context kvr.CommandContext
---@return integer
return function(context)
  cell.build = context.build
  return command.run("gate", parser_of(), context, function(arguments)
    policy.folder = arguments.policies or context.policies
    local why = complaint(arguments)
    if why then
      io.stderr:write(("kvroute gate: %s (see --help)\n"):format(why))
      return command.USAGE
    end
    local result = gate.run(options_of(arguments, context))
    result.active_share = result.traffic.known * (1 - arguments.active_margin)
    if arguments.out then store.write_file(arguments.out, gate_file.envelope(result)) end
    io.write(arguments.json and json.encode(gate_file.data(result), true) .. "\n"
      or gate_file.text(result))
    return result.verdict == "enable" and command.OK or KEEP
  end)
end
