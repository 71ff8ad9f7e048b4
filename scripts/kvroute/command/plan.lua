-- kvroute plan
local argparse = require("argparse")
local cell = require("kvroute.cell")
local command = require("kvroute.command")
local json = require("kvroute.json")
local plan = require("kvroute.plan")
local plan_knee = require("kvroute.plan_knee")
local plan_rows = require("kvroute.plan_rows")
local policy = require("kvroute.policy")
local store = require("kvroute.store")

local function parser_of()
  local parser = argparse("kvroute plan",
    "Places keys of known rates on destinations (CacheRoute's Algorithm 1): the keys of highest\n"
    .. "rate, as long as there are slots, each to the least loaded; and shows the loads that are\n"
    .. "expected. Exit status: 0 made, 1 failed, 2 asked wrongly.")
  parser:option("--rates", "CSV with the header key,rate or key,rate,tokens, with a model behind "
    .. "the key where there are several, or *.jsonl with objects of these; .gz too"):argname("FILE")
  parser:option("--rows", "rates from rows of a router, in place of --rates"):argname("FILE")
    :count("*")
  parser:option("--write-rates", "those of --rows, as --rates reads them"):argname("FILE")
  parser:option("--calibrate", "measure q_cap: of the engine at that URL, by a ladder of rates of "
    .. "--slots keys straight at it; or, without a URL, replay rows of the --slots hottest keys "
    .. "on one emulated destination; the rows need rows.blocks"):args("?"):argname("URL")
  parser:option("--profile", "of the emulated one"):argname("NAME")
  parser:option("--slo-ttft", "its most p99 of the time to first token", 3500):argname("MS")
    :convert(tonumber)
  parser:option("--rate-from", "lowest rung of the ladder, requests a second", 1)
    :convert(tonumber):argname("RATE")
  parser:option("--rate-to", "no rung is above", 1000):convert(tonumber):argname("RATE")
  parser:option("--seconds", "of a rung", 20):convert(tonumber):argname("N")
  parser:option("--requests", "of a rung, at most", 2000):convert(tonumber):argname("N")
  parser:option("--load", "one more argument of kvroute load at each rung, such as "
    .. "--load=--set=context_tokens=2000"):count("*"):argname("WORD")
  parser:option("--cells", "folder of what was run to calibrate", ".cells"):argname("DIR")
  parser:option("--destinations", "so many of weight 1, named 0, 1, ..."):convert(tonumber)
    :argname("N")
  parser:option("--to", "a destination and its weight, which is 1 if left out"):count("*")
    :argname("NAME[=W]")
  parser:option("--serves", "a destination serves that model, and only those that are named so; "
    .. "without, any"):count("*"):argname("NAME=MODEL")
  parser:option("--slots", "copies of keys for each destination, on average; no limit if left out")
    :convert(tonumber):argname("N")
  parser:option("--q-cap", "most load of one copy, in the unit of the rates: hotter keys get more "
    .. "copies"):convert(tonumber):argname("RATE")
  parser:flag("--skip", "pass over a key whose copies do not fit, instead of ending there")
  parser:option("--phi", "most load of one copy over the mean of destinations")
    :convert(tonumber):argname("SHARE")
  parser:option("--tokens", "of prefixes for each destination, on average: admission by the tokens "
    .. "that a key saves over those it takes"):convert(tonumber):argname("N")
  parser:option("--residency", "how long an idle prefix stays in a cache, in the time unit of the "
    .. "rates: what is warm everywhere is worth less; with --tokens"):convert(tonumber)
    :argname("TIME")
  parser:option("--out", "write the plan: " .. plan.HEADER):argname("FILE")
  parser:option("--last", "a plan written before, to show the churn against"):argname("FILE")
  parser:flag("--keep", "go on from the last plan: keys stay where they are, and ...")
  parser:option("--theta", "... move only where a load is over 1 + THETA times the mean, ...")
    :convert(tonumber):argname("THETA")
  parser:option("--move-budget", "... and so much of all rate, 0 to 1"):convert(tonumber)
    :argname("SHARE")
  parser:option("--loyalty", "at admission a key of the last plan counts so many times its rate")
    :convert(tonumber):argname("TIMES")
  parser:option("--life", "how long the plan will be in force, in the time unit of the rates: says "
    .. "whether it is worth its warm-up"):convert(tonumber):argname("TIME")
  parser:flag("--json", "show as JSON")
  return parser
end

local MOST = { destinations = 1024, slots = 10000000 } -- as of a router

local function is_whole(value) return value >= 1 and value % 1 == 0 end

-- What is wrong with the numbers, or nil.
local function complaint(arguments)
  local url = arguments.calibrate and arguments.calibrate[1]
  if url then
    local good = arguments.slots and is_whole(arguments.slots) and arguments.slo_ttft
      and arguments.slo_ttft > 0
    if not good then return "--calibrate URL needs --slots, and --slo-ttft above 0" end
    for _, name in ipairs({ "rate_from", "rate_to", "seconds", "requests" }) do
      if not (arguments[name] and arguments[name] > 0 and arguments[name] < math.huge) then
        return ("--%s is a number above 0"):format((name:gsub("_", "-")))
      end
    end
    return arguments.rate_to < arguments.rate_from and "--rate-to is below --rate-from" or nil
  end
  if (arguments.rates ~= nil) == (#arguments.rows > 0) then return "either --rates or --rows" end
  if arguments.write_rates and arguments.rates then return "--write-rates needs --rows" end
  if arguments.calibrate then
    local good = arguments.profile and arguments.slots and is_whole(arguments.slots)
      and #arguments.rows > 0
    return not good and "--calibrate needs --rows, --profile and --slots" or nil
  end
  if arguments.write_rates and not arguments.destinations and #arguments.to == 0 then return nil end
  if (arguments.destinations ~= nil) == (#arguments.to > 0) then
    return "either --destinations or --to"
  end
  for name, most in pairs(MOST) do
    local value = arguments[name]
    if value and not (is_whole(value) and value <= most) then
      return ("--%s is a whole number from 1 to %d"):format(name, most)
    end
  end
  if arguments.q_cap and arguments.q_cap <= 0 then return "--q-cap is above 0" end
  if arguments.keep and not arguments.last then return "--keep needs --last" end
  for _, name in ipairs({ "theta", "move_budget", "loyalty" }) do
    if arguments[name] and not arguments.keep then
      return ("--%s needs --keep"):format((name:gsub("_", "-")))
    end
  end
  for _, name in ipairs({ "phi", "tokens", "residency", "theta", "move_budget", "life" }) do
    local value = arguments[name]
    if value and (value < 0 or value ~= value) then
      return ("--%s is 0 or more"):format((name:gsub("_", "-")))
    end
  end
  if arguments.life and not arguments.last then return "--life needs --last" end
  if arguments.residency and not arguments.tokens then return "--residency needs --tokens" end
end

local function destinations_of(arguments)
  local out, seen = {}, {}
  for i = 1, arguments.destinations or 0 do out[i] = { name = tostring(i - 1), weight = 1 } end
  for i, text in ipairs(arguments.to) do
    local name, weight = text:match("^([^%s,=]+)=?(.*)$")
    weight = weight == "" and 1 or tonumber(weight)
    if not name or not weight or weight <= 0 then
      error(("--to is NAME or NAME=WEIGHT, not %s"):format(text), 0)
    end
    if seen[name] then error(("--to %s is there twice"):format(name), 0) end
    seen[name] = true
    out[i] = { name = name, weight = weight }
  end
  for _, text in ipairs(arguments.serves) do
    local name, model, found = text:match("^([^%s,=]+)=([^%s,]+)$")
    for _, each in ipairs(out) do
      if each.name == name then
        each.models, found = each.models or {}, true
        each.models[model] = true
      end
    end
    if not found then error(("--serves is NAME=MODEL of a destination, not %s"):format(text), 0) end
  end
  return out
end

-- Straight at a running engine.
local function climb(arguments, context)
  local options = { binary = context.binary, url = arguments.calibrate[1], keys = arguments.slots,
    slo_ttft_ms = arguments.slo_ttft, from = arguments.rate_from, to = arguments.rate_to,
    seconds = arguments.seconds, requests = arguments.requests, timeout_s = 30,
    more = arguments.load, epoch = os.time() * 100,
    say = not arguments.json and function(text) io.stderr:write(text, "\n") end or nil }
  local knee = plan_knee.measure(options)
  io.write(arguments.json and json.encode(plan_knee.data(knee, options), true) .. "\n"
    or plan_knee.text(knee, options))
  return knee.q_cap and command.OK or command.FAILED
end

local function calibrate(arguments, context)
  local q_cap, above = plan_rows.q_cap({
    rows = arguments.rows, profile = arguments.profile, keys = arguments.slots, router = {},
    slo_ttft_ms = arguments.slo_ttft, failed = 0.05, gain = 0, judged = 0.25, seeds = 5,
    first_seed = 1, drain_s = 30, cells = arguments.cells, binary = context.binary, jobs = 2,
    say = function(text) io.stderr:write(text, "\n") end,
  })
  if arguments.json then
    io.write(json.encode({ q_cap = q_cap, above = above }), "\n")
  else
    io.write(("q_cap %.3g requests a second: %d keys on one emulated %s, p99 within %g ms%s\n")
      :format(q_cap, arguments.slots, arguments.profile, arguments.slo_ttft,
      above and ("; not at %.3g"):format(above) or ""))
  end
  return command.OK
end

local function rates_of(arguments)
  if arguments.rates then return plan.read_rates(arguments.rates) end
  local rates
  rates, arguments.counted = plan_rows.rates(arguments.rows)
  if arguments.write_rates then
    store.write_file(arguments.write_rates, plan_rows.csv(rates))
  end
  return rates
end

---@param context kvr.CommandContext
---@return integer
return function(context)
  policy.folder, cell.build = context.policies, context.build
  return command.run("plan", parser_of(), context, function(arguments)
    local why = complaint(arguments)
    if why then
      io.stderr:write(("kvroute plan: %s (see --help)\n"):format(why))
      return command.USAGE
    end
    if arguments.calibrate then
      return (arguments.calibrate[1] and climb or calibrate)(arguments, context)
    end
    local last, whole
    if arguments.last then last, whole = plan.read(arguments.last) end
    if last and not whole then
      io.stderr:write(("kvroute plan: %s: its version 1 does not say how many keys it has: that "
        .. "some are missing would go unnoticed\n"):format(arguments.last))
    end
    local rates = rates_of(arguments)
    if not arguments.destinations and #arguments.to == 0 then return command.OK end
    local made = plan.make(rates, destinations_of(arguments), arguments, last)
    local churn = last and plan.churn(last, made)
    if arguments.out then store.write_file(arguments.out, plan.csv(made)) end
    io.write(arguments.json and json.encode(plan.data(made, churn), true) .. "\n"
      or plan.text(made, churn))
    return command.OK
  end)
end
