-- What a gate says, to be read by people, by programs, and by a router: the file of a gate that
-- says `enable` is the envelope that its live guard keeps to (core/router/envelope.h).
local json = require("kvroute.json")
local policy = require("kvroute.policy")
local stats = require("kvroute.stats")
local table_of = require("kvroute.table")
local verdict = require("kvroute.gate_verdict")

local M = { FORMAT = "kvroute-gate-2", KEYS_MAX = 1000000 }

-- ---- to be read ----

local function with_half(all, scale, digits)
  local mean, half = stats.interval(all)
  local format = "%." .. digits .. "f"
  if half ~= half then return format:format(mean * scale) end
  return (format .. " +- " .. format):format(mean * scale, half * scale)
end

local function row_of(load, label, measures, limits)
  local function of(name, scale, digits)
    return with_half(verdict.values(measures, function(m) return m[name] end), scale, digits)
  end
  local waits = verdict.values(measures, function(m)
    return math.min(m.p99_ms, limits.patience_ms)
  end)
  return { ("%s %.4g/s"):format(load.name, load.rate), label, of("hit", 100, 1),
    of("imbalance", 1, 2), with_half(waits, 1, 0), of("failed", 100, 2),
    ("%d of %d"):format(verdict.passing(measures, limits), #measures) }
end

local function difference_row(load, limits)
  local d = verdict.differences(load, limits)
  local function of(each, scale, digits)
    if each.sign == 0 then return "tie" end
    return ("%+." .. digits .. "f"):format(each.mean * scale)
  end
  local p99 = d.p99.sign == 0 and "tie" or ("%+.0f %%"):format(100 * (math.exp(d.p99.mean) - 1))
  return { "", "difference", of(d.hit, 100, 1), of(d.imbalance, 1, 2), p99,
    of(d.failed, 100, 2), "" }
end

local function baseline_note(result)
  local race = result.race
  if not race then
    return "The baseline was given; --baseline best takes the best reactive policy instead."
  end
  return ("The baseline is the best of %d reactive policies, by the highest load within the limits"
    .. "%s."):format(#race.names, #race.at_knee > 1
    and (", where %d hold, and p99 there"):format(#race.at_knee) or "")
end

---@param result kvr.GateResult
---@return string
function M.text(result)
  local rows, limits, traffic = {}, result.limits, result.traffic
  for _, load in ipairs(result.loads) do
    rows[#rows + 1] = row_of(load, result.against.label, load.against, limits)
    rows[#rows + 1] = row_of(load, result.candidate.label, load.candidate, limits)
    rows[#rows + 1] = difference_row(load, limits)
  end
  return table_of.text({
    title = ("%s: %s\n"):format(result.verdict, result.reason)
      .. ("%s against %s on emulated engines of %s"):format(result.candidate.label,
        result.against.label, result.fleet.profile),
    head = { "load", "policy", "hit %", "busiest\nover mean", "p99 TTFT ms", "failed %",
      "within\nlimits" },
    rows = rows,
    notes = {
      ("%d requests of %d keys, recorded at %.4g a second: %d to warm up, %d judged."):format(
        traffic.requests, #traffic.keys, traffic.rate, traffic.warmup,
        traffic.requests - traffic.warmup),
      ("Means of %d repetitions and half their 95 %% intervals; differences are of pairs."):format(
        result.seeds),
      ("Limits: p99 to the first token %g ms, failures %g %%; the baseline's knee is at %.4g a "
        .. "second."):format(limits.ttft_ms, 100 * limits.failed, result.knee),
      baseline_note(result),
    },
  })
end

-- ---- to be kept ----

-- What was judged, by the hashes that rows have of it.
local function script_of(found)
  local script, spill = found.script, found.spill
  local params_hash, spill_hash = policy.params_hashes(found)
  return { name = script.name, hash = script.hash, params = script.params,
    params_hash = params_hash, spill = spill and { name = spill.name, hash = spill.hash,
      params = spill.params, params_hash = spill_hash } or json.null }
end

local function mean_of(measures, of) return (stats.mean(verdict.values(measures, of))) end

local function measures_of(measures, limits)
  return {
    hit_rate = mean_of(measures, function(m) return m.hit end),
    imbalance = mean_of(measures, function(m) return m.imbalance end),
    ttft_p99_ms = mean_of(measures, function(m) return math.min(m.p99_ms, limits.patience_ms) end),
    failed_share = mean_of(measures, function(m) return m.failed end),
    token_ms = mean_of(measures, function(m) return m.token_ms end),
  }
end

-- A difference of logarithms as the ratio - 1 that it is.
local function as_ratio(d)
  local function of(log) return math.exp(log) - 1 end
  return { mean = of(d.mean), least = of(d.mean - d.half), most = of(d.mean + d.half),
    sign = d.sign }
end

local function differences_of(load, limits)
  local out = {}
  for name, d in pairs(verdict.differences(load, limits)) do
    out[name] = name == "p99" and as_ratio(d)
      or { mean = d.mean, least = d.mean - d.half, most = d.mean + d.half, sign = d.sign }
  end
  return out
end

-- What a token more may cost an answer that comes whole: what it cost near the knee, under the
-- policy that it cost more.
local function token_ms(result)
  local function of(measure) return measure.token_ms end
  for _, load in ipairs(result.loads) do
    if load.name == "near" then
      return math.max(mean_of(load.against, of), mean_of(load.candidate, of))
    end
  end
end

---Without the keys: what `--json` shows.
---@param result kvr.GateResult
---@return table
function M.data(result)
  local loads, traffic, limits = {}, result.traffic, result.limits
  for i, load in ipairs(result.loads) do
    loads[i] = { name = load.name, rate = load.rate, differences = differences_of(load, limits),
      against = measures_of(load.against, limits),
      candidate = measures_of(load.candidate, limits) }
  end
  return {
    format = M.FORMAT, verdict = result.verdict, reason = result.reason,
    candidate = script_of(result.candidate), against = script_of(result.against),
    bounds = { active_share = result.active_share, ttft_p99_ms = limits.ttft_ms,
      token_ms = limits.token_ms or token_ms(result) },
    best_of = result.race and { policies = json.list(result.race.names),
      at_knee = json.list(result.race.at_knee) } or nil,
    rows = { hash = traffic.hash, requests = traffic.requests, judged = traffic.requests
      - traffic.warmup, rate = traffic.rate, span_s = traffic.span_s },
    profile = result.fleet.profile, replicas = result.fleet.replicas, router = result.router,
    knee = result.knee, loads = json.list(loads), seeds = result.seeds,
    known_share = traffic.known,
  }
end

---The envelope: all of it, with the active set as routing keys and their rates.
---@param result kvr.GateResult
---@return string
function M.envelope(result)
  local data, keys = M.data(result), {}
  for i = 1, math.min(#result.traffic.keys, M.KEYS_MAX) do
    local each = result.traffic.keys[i]
    keys[i] = json.list({ each.key, each.rate })
  end
  data.keys = json.list(keys)
  return json.encode(data) .. "\n"
end

return M
