-- What benches of whole processes share: starting and ending them on chosen cores, what they cost,
-- windows that others did not disturb, and figures as JSON lines.
local cjson = require("cjson")
local socket = require("socket")
local fcntl = require("posix.fcntl")
local posix_wait = require("posix.sys.wait")
local signal = require("posix.signal")
local time = require("posix.time")
local unistd = require("posix.unistd")
local bit = require("bit")
local store = require("kvroute.store")

local M = {}
local running = {} -- by pid
local names = {}   -- of programs, by pid

M.build = os.getenv("KVR_BUILD") or "build"
M.work = assert(io.popen("mktemp -d"):read("*l"))

function M.now()
  local t = time.clock_gettime(time.CLOCK_MONOTONIC)
  return t.tv_sec + t.tv_nsec / 1e9
end

function M.sleep(seconds) socket.sleep(seconds) end

local read = store.read_file

function M.write(name, text)
  local path = M.work .. "/" .. name
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

---Starts argv on one core; output goes to files in the work folder. Returns its pid.
---@param core integer|nil
function M.start(core, argv)
  local command = core and { "taskset", "-c", tostring(core) } or {}
  for _, word in ipairs(argv) do command[#command + 1] = word end
  local pid = assert(unistd.fork())
  if pid == 0 then
    local name = ("%s/%s.%d"):format(M.work, argv[1]:match("[^/]*$"), unistd.getpid())
    for fd = 1, 2 do
      local out = fcntl.open(name .. (fd == 1 and ".out" or ".err"),
        bit.bor(fcntl.O_WRONLY, fcntl.O_CREAT, fcntl.O_TRUNC), 384)
      unistd.dup2(out, fd)
    end
    unistd.execp(command[1], { [0] = command[1], unpack(command, 2) })
    unistd._exit(127)
  end
  running[pid] = true
  names[pid] = argv[1]:match("[^/]*$")
  return pid
end

function M.output(pid, which)
  return read(("%s/%s.%d.%s"):format(M.work, names[pid] or "?", pid, which or "out")) or ""
end

---Waits until a process has ended by itself; returns its exit code and its output.
function M.finish(pid)
  local _, _, code = posix_wait.wait(pid)
  local out = M.output(pid)
  running[pid] = nil
  return code, out
end

function M.stop(pid, number)
  if not running[pid] then return end
  signal.kill(pid, number or signal.SIGTERM)
  posix_wait.wait(pid)
  running[pid] = nil
end

function M.stop_all()
  for pid in pairs(running) do M.stop(pid, signal.SIGKILL) end
  os.execute("rm -rf " .. M.work)
end

function M.free_port()
  local listener = assert(socket.bind("127.0.0.1", 0))
  local _, port = listener:getsockname()
  listener:close()
  return tonumber(port)
end

---Body of a GET, or nil.
function M.get(port, path)
  local connection = socket.tcp()
  connection:settimeout(2)
  if not connection:connect("127.0.0.1", port) then return nil end
  connection:send(("GET %s HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n"):format(path))
  local head = {}
  local length = 0
  while true do
    local line = connection:receive("*l")
    if not line or line == "" then break end
    head[#head + 1] = line
    length = tonumber(line:lower():match("^content%-length: (%d+)")) or length
  end
  local body = connection:receive(length)
  connection:close()
  return head[1] and head[1]:find(" 200 ") and body or nil
end

---Ends the bench with this on stderr, and no more figures.
function M.fail(text)
  error({ text = text }, 0)
end

local function has_ended(pid)
  local found, how = posix_wait.wait(pid, posix_wait.WNOHANG)
  if found ~= pid or how == "running" then return false end
  running[pid] = nil
  return true
end

---Until something answers there; false when the process that was to has ended.
function M.await(port, path, pid)
  for _ = 1, 200 do
    if pid and has_ended(pid) then return false end
    if M.get(port, path) then return true end
    M.sleep(0.05)
  end
  M.fail("nothing answers at 127.0.0.1:" .. port .. path)
end

---What a process has written, by the captures of a pattern, once it has.
function M.await_output(pid, pattern)
  for _ = 1, 10000 do
    local found = { M.output(pid):match(pattern) }
    if found[1] then return unpack(found) end
    if has_ended(pid) then break end
    M.sleep(0.001)
  end
  M.fail("a process has not said \"" .. pattern .. "\": " .. M.output(pid, "err"):sub(-500))
end

---CPU seconds of a process, all its threads.
function M.cpu(pid)
  local total = 0
  local listing = io.popen("cat /proc/" .. pid .. "/task/*/schedstat 2>/dev/null")
  for line in listing:lines() do total = total + tonumber(line:match("^%d+")) / 1e9 end
  listing:close()
  return total
end

function M.rss_mb(pid)
  local status = read("/proc/" .. pid .. "/status") or ""
  return tonumber(status:match("VmRSS:%s+(%d+)") or 0) / 1024
end

local ticks_per_second = 100

---Busy seconds of the whole machine.
local function machine_busy()
  local user, nice, system, _, _, irq, soft =
    read("/proc/stat"):match("^cpu +(%d+) (%d+) (%d+) (%d+) (%d+) (%d+) (%d+)")
  return (user + nice + system + irq + soft) / ticks_per_second
end

---Measures one window of `seconds`: CPU of each pid, the change of `count()`, and the share of the
---machine that others used.
---@param pids integer[]
---@param count fun(): number
function M.window(seconds, pids, count)
  local before, cpu = {}, {}
  local began, busy = M.now(), machine_busy()
  for i, pid in ipairs(pids) do before[i] = M.cpu(pid) end
  local counted = count()
  M.sleep(seconds)
  counted = count() - counted
  local ours = 0
  for i, pid in ipairs(pids) do
    cpu[i] = M.cpu(pid) - before[i]
    ours = ours + cpu[i]
  end
  local elapsed = M.now() - began
  local foreign = (machine_busy() - busy - ours) / (elapsed * 2)
  return { seconds = elapsed, cpu = cpu, count = counted, foreign = math.max(0, foreign) }
end

function M.median(values)
  table.sort(values)
  local n = #values
  if n == 0 then return 0 / 0 end
  return n % 2 == 1 and values[(n + 1) / 2] or (values[n / 2] + values[n / 2 + 1]) / 2
end

function M.figure(bench, figure, value, unit)
  if value ~= value or math.abs(value) == math.huge then
    M.fail(("%s: %s has no value: too few valid measurements"):format(bench, figure))
  end
  io.write(cjson.encode({ bench = bench, figure = figure, unit = unit }):sub(1, -2),
    (',"value":%.6g}\n'):format(value))
  io.flush()
end

---Ends the bench unless there was a valid window for each, before any of its figures.
---@param bench string
---@param proxies table of { name, rates, dropped }
function M.need_windows(bench, proxies)
  for _, proxy in ipairs(proxies) do
    if #proxy.rates == 0 then
      M.fail(("%s: no valid window for %s: in all %d of them others used too much of the machine")
        :format(bench, proxy.name, proxy.dropped))
    end
  end
end

---Runs the bench and ends all it started, whatever happens.
function M.run(bench)
  signal.signal(signal.SIGINT, function() M.stop_all() os.exit(130) end)
  local ok, why = xpcall(bench, function(problem)
    return type(problem) == "table" and problem.text or debug.traceback(problem)
  end)
  if not ok then
    for pid in pairs(running) do
      local log = M.output(pid, "err")
      if log ~= "" then io.stderr:write(names[pid], ": ", log:sub(-500), "\n") end
    end
  end
  M.stop_all()
  if not ok then
    io.stderr:write(tostring(why), "\n")
    os.exit(1)
  end
end

---English-like text of a given length, by a seed.
function M.text(bytes, seed)
  local words = { "the", "router", "keeps", "prompt", "cache", "of", "a", "warm", "card", "and",
    "sends", "next", "turn", "to", "it", "again." }
  local out, size, state = {}, 0, seed * 2654435761 % 2 ^ 32
  while size < bytes do
    state = (state * 1664525 + 1013904223) % 2 ^ 32
    local word = words[math.floor(state / 2 ^ 28) + 1]
    out[#out + 1] = word
    size = size + #word + 1
  end
  return table.concat(out, " "):sub(1, bytes)
end

---A script for wrk: `bodies` chat requests whose bodies are of `bytes`, in turn.
function M.wrk_script(bytes, bodies, stream)
  local lines = { "local requests = {}" }
  for i = 1, bodies do
    local body = cjson.encode({
      model = "bench", max_tokens = 64, stream = stream or nil,
      messages = { { role = "user", content = M.text(bytes - 120, i) } },
    })
    local headers = "{['Content-Type']='application/json'}"
    lines[#lines + 1] = ("requests[%d] = wrk.format('POST', '/v1/chat/completions', %s, %q)")
      :format(i, headers, body)
  end
  lines[#lines + 1] = "local n = 0"
  lines[#lines + 1] = ("request = function() n = n %% %d + 1 return requests[n] end"):format(bodies)
  -- wrk makes its own headers known only after the script has run: format late.
  local text = table.concat(lines, "\n")
    :gsub("^local requests = {}", "local requests = {}\ninit = function()", 1)
  text = text:gsub("\nlocal n = 0", "\nend\nlocal n = 0", 1)
  return M.write(("wrk_%d_%s.lua"):format(bytes, stream and "sse" or "json"), text)
end

return M
