-- How far a run is: one line that is rewritten on a terminal, else a line a minute. It goes to
-- stderr, so that stdout is the result alone.
local time = require("posix.time")
local unistd = require("posix.unistd")

local TERMINAL_S, PLAIN_S = 0.2, 60 -- between two lines

---@class kvr.Progress
---@field total integer
---@field done integer of these, in this run
---@field failed integer
local Progress = {}
Progress.__index = Progress

local M = {}

---@return number # seconds
function M.now()
  local t = time.clock_gettime(time.CLOCK_MONOTONIC)
  return t.tv_sec + t.tv_nsec / 1e9
end

---@param seconds number
---@return string # "41 s", "3 min 20 s", "2 h 5 min"
function M.duration(seconds)
  local s = math.ceil(seconds)
  if s < 60 then return s .. " s" end
  if s < 3600 then return ("%d min %d s"):format(math.floor(s / 60), s % 60) end
  return ("%d h %d min"):format(math.floor(s / 3600), math.floor(s % 3600 / 60))
end

---@param total integer cells to run
---@param out? file* stderr
---@param terminal? boolean is it one?
---@return kvr.Progress
function M.new(total, out, terminal)
  if terminal == nil then terminal = unistd.isatty(2) == 1 end
  return setmetatable({
    total = total, done = 0, failed = 0,
    out = out or io.stderr, terminal = terminal, began = M.now(), said = M.now(), width = 0,
  }, Progress)
end

---@return string
function Progress:line(now)
  local parts = { ("%d of %d cells"):format(self.done, self.total) }
  if self.failed > 0 then parts[#parts + 1] = self.failed .. " failed" end
  local elapsed = now - self.began
  if self.done > 0 and self.done < self.total then
    local left = elapsed / self.done * (self.total - self.done)
    parts[#parts + 1] = M.duration(left) .. " left"
  elseif self.done == self.total then
    parts[#parts + 1] = M.duration(elapsed)
  end
  return table.concat(parts, ", ")
end

local function say(self, now)
  local line = self:line(now)
  self.said = now
  if not self.terminal then
    self.out:write(line, "\n")
  else
    self.out:write("\r", line, (" "):rep(self.width - #line))
    self.width = #line
  end
  self.out:flush()
end

---One more cell has ended.
---@param ok boolean
function Progress:add(ok)
  self.done = self.done + 1
  if not ok then self.failed = self.failed + 1 end
  self:tick()
end

---To be called now and then.
function Progress:tick()
  local now = M.now()
  if now - self.said >= (self.terminal and TERMINAL_S or PLAIN_S) then say(self, now) end
end

---The last line. A short run leaves none in a file.
function Progress:finish()
  local now = M.now()
  if self.terminal then
    if self.total > 0 then say(self, now) self.out:write("\n") end
  elseif now - self.began >= PLAIN_S then
    say(self, now)
  end
end

return M
