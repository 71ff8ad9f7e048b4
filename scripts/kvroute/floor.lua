-- The floor of latency: one client, one request at a time, straight at each replica, text that no
-- engine has seen. Nothing that a router does can be quicker, so limits of a good request are a
-- multiple of it: of the medians over all replicas' requests together.
local cjson = require("cjson")
local ffi = require("kvroute.ffi")
local policy = require("kvroute.policy")
local simulate = require("kvroute.simulate")
local stats = require("kvroute.stats")
local tables = require("kvroute.table")

local M = {
  FACTOR = 3,
  REQUESTS = 100, -- of each replica
  WARMUP = 3,     -- requests before
  CACHED = 0.05,  -- more of the prompts in a cache: this is no floor
  -- Limits are rounded up to these, in ms.
  TTFT_STEP = 5,
  ITL_STEP = 1,
}

-- Independent requests of one turn, each from a conversation of its own.
local workload = {
  turns = 1, user_bytes = 2048, system_share = 0, branch_share = 0, sessions = 1000000, skew = 0,
  max_tokens = 64, early_share = 0, users = 1,
}

---@class kvr.FloorSample of one replica
---@field replica string
---@field ttft number[] ms
---@field itl number[] ms, medians of requests
---@field prompt_tokens number
---@field cached_tokens number? nil: the engine does not say
---@field failed integer

local collector = [[
return function()
  local out = { ttft = {}, itl = {}, prompt_tokens = 0, cached_tokens = 0, failed = 0 }
  return function(record)
    if record.measured == 0 then return end
    if record.outcome ~= 0 then out.failed = out.failed + 1 return end
    out.ttft[#out.ttft + 1], out.itl[#out.itl + 1] = record.ttft_ms, record.itl_p50_ms
    out.prompt_tokens = out.prompt_tokens + record.prompt_tokens
    out.cached_tokens = out.cached_tokens + record.cached_tokens
  end, function() return out end
end
]]

---@param fleet table of kvroute.fleet, simulated; how many replicas it has
---@param replicas integer
---@param requests integer of each
---@return kvr.FloorSample[]
function M.simulated(fleet, replicas, requests)
  local chosen = policy.resolve("round_robin")
  local hash = ffi.hash64(collector)
  local texts = { [hash] = collector }
  for each, text in pairs(chosen.texts) do texts[each] = text end
  local out = {}
  for i = 1, replicas do
    local one, asked = {}, { kind = "sessions", arrivals = "closed" }
    for name, value in pairs(fleet) do one[name] = value end
    for name, value in pairs(workload) do asked[name] = value end
    -- Each by itself: a slow one stays the one that it is.
    one.replicas, one.weights, one.changes = 1, nil, nil
    one.slowdowns = fleet.slowdowns and { fleet.slowdowns[i] }
    local result = simulate.run({ texts = texts, spec = {
      fleet = one, workload = asked, router = {}, slo = {}, seed = i,
      measure = { requests = requests, warmup_requests = M.WARMUP },
      policy = chosen.script, collect = { { name = "floor", hash = hash } },
    } })
    out[i] = result.collected.floor
    out[i].replica = tostring(i - 1)
  end
  return out
end

local function quoted(text)
  return "'" .. text:gsub("'", "'\\''") .. "'"
end

local function known(value)
  return value ~= cjson.null and value or nil
end

local function add_row(sample, row)
  if row.outcome ~= "success" then
    sample.failed = sample.failed + 1
    return
  end
  sample.ttft[#sample.ttft + 1] = known(row.ttft_ms)
  sample.itl[#sample.itl + 1] = known(row.itl_p50_ms)
  sample.prompt_tokens = sample.prompt_tokens + (known(row.prompt_tokens) or 0)
  if known(row.cached_tokens) then
    sample.cached_tokens = (sample.cached_tokens or 0) + row.cached_tokens
  end
end

local function read_rows(path, sample)
  local number = 0
  for line in io.lines(path) do
    number = number + 1
    if number > M.WARMUP then add_row(sample, cjson.decode(line)) end
  end
end

---@param binary string path of kvroute
---@param urls string[]
---@param requests integer of each
---@param more string[] further arguments of kvroute load
---@param epoch integer text of its own
---@return kvr.FloorSample[]
function M.live(binary, urls, requests, more, epoch)
  local out, rows = {}, os.tmpname()
  for i, url in ipairs(urls) do
    local command = { quoted(binary), "load", quoted(url), "--quiet", "--json",
      "--requests", tostring(requests + M.WARMUP), "--rows", quoted(rows),
      "--set", ("epoch=%d"):format(epoch + i) }
    for name, value in pairs(workload) do
      command[#command + 1] = ("--set %s=%s"):format(name, tostring(value))
    end
    for _, text in ipairs(more) do command[#command + 1] = quoted(text) end
    local pipe = assert(io.popen(table.concat(command, " ") .. " 2>&1; echo; echo $?"))
    local said = pipe:read("*a")
    pipe:close()
    local text, status = said:match("^(.-)\n(%d+)\n$")
    -- 3: it was done and is flagged; what failed is counted here.
    if status ~= "0" and status ~= "3" then
      os.remove(rows)
      error((text or said):gsub("%s+$", ""), 0)
    end
    out[i] = { replica = url, ttft = {}, itl = {}, prompt_tokens = 0, failed = 0 }
    read_rows(rows, out[i])
  end
  os.remove(rows)
  return out
end

local function round_up(value, step)
  -- 987.0000001 is 987 that a sum has spoilt.
  return math.ceil(value / step - 1e-6) * step
end

local function pool(samples)
  local out = { replica = "all", ttft = {}, itl = {}, prompt_tokens = 0, failed = 0 }
  for _, sample in ipairs(samples) do
    for _, name in ipairs({ "ttft", "itl" }) do
      for _, value in ipairs(sample[name]) do table.insert(out[name], value) end
    end
    out.failed = out.failed + sample.failed
    out.prompt_tokens = out.prompt_tokens + sample.prompt_tokens
    if sample.cached_tokens then
      out.cached_tokens = (out.cached_tokens or 0) + sample.cached_tokens
    end
  end
  return out
end

---@class kvr.Floor
---@field ttft_ms number medians
---@field itl_ms number
---@field slo {ttft_ms: number, itl_ms: number}
---@field factor number
---@field cached number? share of the prompts
---@field samples kvr.FloorSample[]
---@field all kvr.FloorSample

---@param samples kvr.FloorSample[]
---@param factor number?
---@return kvr.Floor? # nil: these are no floor
---@return string? why
function M.judge(samples, factor)
  factor = factor or M.FACTOR
  local all = pool(samples)
  if #all.ttft == 0 or #all.itl == 0 then return nil, "no request has succeeded" end
  if all.failed > 0 then return nil, ("%d requests have failed"):format(all.failed) end
  local cached = all.cached_tokens and all.prompt_tokens > 0
    and all.cached_tokens / all.prompt_tokens or nil
  if cached and cached > M.CACHED then
    return nil, ("%.0f %% of the prompts were in a cache, so this is no floor"):format(
      100 * cached)
  end
  local ttft, itl = stats.median(all.ttft), stats.median(all.itl)
  return {
    ttft_ms = ttft, itl_ms = itl, factor = factor, cached = cached, samples = samples, all = all,
    slo = {
      ttft_ms = round_up(factor * ttft, M.TTFT_STEP), itl_ms = round_up(factor * itl, M.ITL_STEP),
    },
  }
end

local function row_of(sample)
  local function ms(values, share) return ("%.1f"):format(stats.quantile(values, share)) end
  return {
    sample.replica, #sample.ttft, ms(sample.ttft, 0.5), ms(sample.ttft, 0.95),
    ms(sample.ttft, 0.99), ms(sample.itl, 0.5), ms(sample.itl, 0.95),
    sample.cached_tokens and ("%.1f %%"):format(100 * sample.cached_tokens
      / math.max(1, sample.prompt_tokens)) or false,
  }
end

---@param floor kvr.Floor
---@return string
function M.text(floor)
  local rows = {}
  for i, sample in ipairs(floor.samples) do rows[i] = row_of(sample) end
  if #rows > 1 then rows[#rows + 1] = row_of(floor.all) end
  local slo = floor.slo
  return tables.text({
    head = { "replica", "requests", "TTFT ms\np50", "\np95", "\np99", "ITL ms\np50", "\np95",
      "cached" },
    rows = rows,
    notes = {
      ("%g x the floor of %.1f and %.1f ms: slo = { ttft_ms = %g, itl_ms = %g }"):format(
        floor.factor, floor.ttft_ms, floor.itl_ms, slo.ttft_ms, slo.itl_ms),
      ("kvroute load URL --goodput ttft:%g itl_p50:%g"):format(slo.ttft_ms, slo.itl_ms),
    },
  })
end

---@param floor kvr.Floor
---@return table
function M.data(floor)
  local function one(sample)
    local out = { replica = sample.replica, requests = #sample.ttft, cached_tokens =
      sample.cached_tokens, prompt_tokens = sample.prompt_tokens }
    for _, name in ipairs({ "ttft", "itl" }) do
      for _, percent in ipairs({ 50, 95, 99 }) do
        out[("%s_p%d_ms"):format(name, percent)] = stats.quantile(sample[name], percent / 100)
      end
    end
    return out
  end
  local replicas = {}
  for i, sample in ipairs(floor.samples) do replicas[i] = one(sample) end
  return { slo = floor.slo, factor = floor.factor, all = one(floor.all), replicas = replicas }
end

return M
