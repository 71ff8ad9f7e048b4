-- What one running destination carries: q_cap of a plan, from its latency-load knee. An open loop
-- climbs a ladder of rates straight at the engine's URL, then closes in between the last rate that
-- is within the limits and the first that is not.
--
--   rate  1 -> 2 -> 4 -> 8 fails -> 5.7 -> 6.7 fails -> 6.2 -> 6.4: the knee, to a tenth
--
-- Bounded: at most STEPS_MAX rungs, each of at most `requests` requests sent within `seconds`, and
-- answers waited for as long as their time-out. Each rung is a `kvroute load` of its own.
local cjson = require("cjson")
local table_of = require("kvroute.table")

local M = {
  STEPS_MAX = 16,
  STEP = 2,      -- between rates while the knee is sought
  CLOSE = 1.1,   -- and between the last that passes and the first that fails
  WARMUP = 0.25, -- so many more requests before each rung: caches are those of the load
  FAILED = 0.05, -- of a rung's requests, at most
  LATE = 0.1,    -- of the limit: a driver that is later makes a rung of its own, not of the engine
}

-- Requests of so many keys, each with a prefix of its own, as a destination of a plan has them.
local WORKLOAD = { "--set", "kind=keys" }

---@class kvr.KneeOptions
---@field binary string path of kvroute
---@field url string of one engine
---@field keys integer a destination's slots
---@field slo_ttft_ms number most p99 of the time to first token
---@field from number requests a second, the lowest rung
---@field to number no rung is above
---@field seconds number of a rung
---@field requests integer of a rung, at most
---@field timeout_s number of a request; one that takes longer has failed
---@field more string[] further arguments of kvroute load
---@field epoch integer of the text: no engine has it in its cache before
---@field say fun(text: string)?

---@class kvr.KneeRung
---@field rate number requests a second
---@field sent integer
---@field failed integer
---@field p50_ms number of the first token over all requests, failed ones as never
---@field p99_ms number
---@field late boolean the driver was
---@field passes boolean

---@class kvr.Knee
---@field rungs kvr.KneeRung[] by rising rate
---@field q_cap number? the highest rate that passes; nil: none
---@field above number? the lowest rate above it that fails; nil: the ladder ended

local function quoted(text) return "'" .. tostring(text):gsub("'", "'\\''") .. "'" end

-- The load's report, decoded.
local function run(options, rate, rows)
  local measured = math.max(1, math.min(options.requests, math.ceil(rate * options.seconds)))
  local before = math.ceil(measured * M.WARMUP)
  local seconds = (measured + before) / rate
  local words = { options.binary, "load", options.url, "--quiet", "--json", "--rows", rows,
    "--rate", ("%.17g"):format(rate), "--requests", measured + before,
    "--warmup", ("%.17g"):format(before / rate), "--duration", ("%.17g"):format(2 * seconds + 1),
    "--timeout", ("%.17g"):format(options.timeout_s),
    "--set", "keys=" .. options.keys, "--set", "epoch=" .. options.epoch }
  for _, word in ipairs(WORKLOAD) do words[#words + 1] = word end
  for _, word in ipairs(options.more) do words[#words + 1] = word end
  for i, word in ipairs(words) do words[i] = quoted(word) end
  local pipe = assert(io.popen(table.concat(words, " ") .. " 2>&1; echo; echo $?"))
  local said = pipe:read("*a")
  pipe:close()
  local text, status = said:match("^(.-)\n(%d+)\n$")
  -- 3: it was done and is flagged; what failed is counted here.
  if status ~= "0" and status ~= "3" then error((text or said):gsub("%s+$", ""), 0) end
  local ok, report = pcall(cjson.decode, text)
  if not ok then error("kvroute load said: " .. text:sub(1, 200), 0) end
  return report
end

-- Times to first token, rising; of those that failed infinite.
local function read_times(path)
  local times, failed = {}, 0
  for line in io.lines(path) do
    local row = cjson.decode(line)
    local good = row.outcome == "success" and row.ttft_ms ~= cjson.null
    if not row.warmup then
      times[#times + 1] = good and row.ttft_ms or math.huge
      failed = failed + (good and 0 or 1)
    end
  end
  table.sort(times)
  return times, failed
end

local function climb(options, rate)
  local rows = os.tmpname()
  local ok, report = pcall(run, options, rate, rows)
  local times, failed = {}, 0
  if ok then times, failed = read_times(rows) end
  os.remove(rows)
  if not ok then error(report, 0) end
  if #times == 0 then error("nothing was sent", 0) end
  local function quantile(q) return times[math.max(1, math.ceil(q * #times))] end
  local rung = { rate = rate, sent = #times, failed = failed, p50_ms = quantile(0.5),
    p99_ms = quantile(0.99), late = report.lateness.p99_ms > M.LATE * options.slo_ttft_ms }
  rung.passes = rung.p99_ms <= options.slo_ttft_ms and failed <= M.FAILED * #times
  if options.say then
    options.say(("%8.4g/s: p99 %.0f ms, %d of %d failed: %s"):format(rate, rung.p99_ms, failed,
      #times, rung.passes and "within" or "over"))
  end
  return rung
end

---Climbs until a rate fails, then halves the way, in ratios, to the last that did not.
---@param options kvr.KneeOptions
---@return kvr.Knee
function M.measure(options)
  local rungs, good, bad = {}, nil, nil
  local rate = options.from
  for _ = 1, M.STEPS_MAX do
    local rung = climb(options, rate)
    rungs[#rungs + 1] = rung
    if rung.passes then good = rate else bad = rate end
    if not good then break end
    if bad and bad / good <= M.CLOSE then break end
    if not bad and rate >= options.to then break end
    rate = bad and math.sqrt(good * bad) or math.min(rate * M.STEP, options.to)
  end
  table.sort(rungs, function(a, b) return a.rate < b.rate end)
  return { rungs = rungs, q_cap = good, above = bad }
end

local function milliseconds(value)
  return value < math.huge and ("%.0f"):format(value) or "never"
end

---@param knee kvr.Knee
---@param options kvr.KneeOptions
---@return string
function M.text(knee, options)
  local rows, late = {}, false
  for i, rung in ipairs(knee.rungs) do
    late = late or rung.late
    rows[i] = { ("%.4g"):format(rung.rate), rung.sent, milliseconds(rung.p50_ms),
      milliseconds(rung.p99_ms), rung.failed, (rung.passes and "within" or "over")
      .. (rung.late and ", driver late" or "") }
  end
  local notes = {}
  if not knee.q_cap then
    notes[1] = ("no q_cap: %g requests a second are over the limits; begin lower (--rate-from)")
      :format(options.from)
  elseif not knee.above then
    notes[1] = ("q_cap is %.4g requests a second or more: the ladder ended, not the load "
      .. "(--rate-to)"):format(knee.q_cap)
  else
    notes[1] = ("q_cap %.4g requests a second; %.4g are over the limits"):format(knee.q_cap,
      knee.above)
  end
  if late then
    notes[2] = "A late driver sends in bursts what should be even: give it a machine of its own."
  end
  return table_of.text({
    title = ("%s, %d keys: p99 of the first token within %g ms, at most %g %% failed"):format(
      options.url, options.keys, options.slo_ttft_ms, 100 * M.FAILED),
    head = { "rate/s", "sent", "p50 ms", "p99 ms", "failed", "limits" }, rows = rows, notes = notes,
  })
end

local function finite(value) return value < math.huge and value or cjson.null end

---@param knee kvr.Knee
---@param options kvr.KneeOptions
---@return table
function M.data(knee, options)
  local rungs = {}
  for i, rung in ipairs(knee.rungs) do
    rungs[i] = { rate = rung.rate, sent = rung.sent, failed = rung.failed,
      p50_ms = finite(rung.p50_ms), p99_ms = finite(rung.p99_ms), late = rung.late,
      passes = rung.passes }
  end
  return { url = options.url, keys = options.keys, slo_ttft_ms = options.slo_ttft_ms, rungs = rungs,
    q_cap = knee.q_cap or cjson.null, above = knee.above or cjson.null }
end

return M
