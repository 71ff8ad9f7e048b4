-- The one place where a test waits. Scripted replicas, clients and timers of a test share this
-- poll loop: while the test waits for anything, all of them go on, so a test says what each side
-- does and in which order, and needs neither threads nor sleeps that hope.
local poll = require("posix.poll").poll
local posix_time = require("posix.time")
local signal = require("posix.signal")

local M = {}

-- Writing to a peer that has gone is an error to look at, not the end of the tests.
signal.signal(signal.SIGPIPE, signal.SIG_IGN)

local watched = {} -- fd -> { events, revents (poll's), readable, writable (ours) }
local timers = {}  -- a list: few, and gone when they have fired

---Seconds, monotonic.
function M.now()
  local t = posix_time.clock_gettime(posix_time.CLOCK_MONOTONIC)
  return t.tv_sec + t.tv_nsec / 1e9
end

---Calls back when fd can be read, written, or has failed. Nil for what is not of interest.
---@param fd integer
---@param readable? function
---@param writable? function
function M.watch(fd, readable, writable)
  local entry = watched[fd] or { events = {} }
  entry.readable, entry.writable = readable, writable
  entry.events.IN, entry.events.OUT = readable ~= nil, writable ~= nil
  watched[fd] = entry
end

---@param fd integer
function M.forget(fd)
  watched[fd] = nil
end

---Calls `fn` once, after so many seconds.
---@return table timer for M.cancel
function M.after(seconds, fn)
  local timer = { at = M.now() + seconds, fn = fn }
  timers[#timers + 1] = timer
  return timer
end

function M.cancel(timer)
  timer.fn = nil
end

local function run_timers()
  local now = M.now()
  local due = {}
  for i = #timers, 1, -1 do
    local timer = timers[i]
    if not timer.fn then
      table.remove(timers, i)
    elseif timer.at <= now then
      due[#due + 1] = timer
      table.remove(timers, i)
    end
  end
  table.sort(due, function(a, b) return a.at < b.at end)
  for _, timer in ipairs(due) do
    if timer.fn then timer.fn() end
  end
end

local function until_next(limit)
  local now = M.now()
  for _, timer in ipairs(timers) do
    limit = math.min(limit, timer.at - now)
  end
  return math.max(0, math.ceil(limit * 1000))
end

---One round: waits at most so long, then serves what is ready.
function M.step(seconds)
  local ready = poll(watched, until_next(seconds))
  if ready and ready > 0 then
    local due = {}
    for fd, entry in pairs(watched) do
      local got = entry.revents
      if got and (got.IN or got.OUT or got.HUP or got.ERR or got.NVAL) then due[fd] = entry end
    end
    for fd, entry in pairs(due) do
      local got = entry.revents
      -- A callback before this one may have forgotten it, or a new one may have its number.
      if entry.writable and watched[fd] == entry and (got.OUT or got.ERR) then entry.writable() end
      if entry.readable and watched[fd] == entry and (got.IN or got.HUP or got.ERR) then
        entry.readable()
      end
    end
  end
  run_timers()
end

---Goes on until condition() is true, and returns what it returned. An error after `seconds`.
---@param condition function
---@param seconds? number 5 when left out
---@param what? string for the error
function M.wait(condition, seconds, what)
  local deadline = M.now() + (seconds or 5)
  while true do
    local result = condition()
    if result then return result end
    local left = deadline - M.now()
    if left <= 0 then error("waited in vain for " .. (what or "a condition"), 2) end
    M.step(math.min(left, 0.05))
  end
end

---Like wait, but returns false instead of an error.
function M.try(condition, seconds)
  local deadline = M.now() + seconds
  repeat
    local result = condition()
    if result then return result end
    M.step(math.max(0, math.min(deadline - M.now(), 0.05)))
  until M.now() >= deadline
  return condition()
end

---Lets everything go on for so long.
function M.sleep(seconds)
  M.try(function() return false end, seconds)
end

return M
