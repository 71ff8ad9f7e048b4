-- Did anything else use the machine while a cell ran? A command looks every few seconds; each line
-- that it prints is something that should not be there. "Nothing found" is only said when it has
-- looked: without a command, or when none of its looks succeeded, nothing was looked for.
--
-- Without a command of the user's, nvidia-smi is asked for processes on the graphics cards, where
-- there is one. Our own engines are among them, so their process numbers must be known; whatever
-- descends from them is ours.
local signal = require("posix.signal")
local stdlib = require("posix.stdlib")
local unistd = require("posix.unistd")
local process = require("kvroute.process")
local store = require("kvroute.store")

local M = {
  EVERY_S = 5,
  NAMED = 5, -- findings that are kept
  NVIDIA = "nvidia-smi --query-compute-apps=pid,process_name,used_memory --format=csv,noheader",
}

local LOOK = [[
exec >"$3"
while :; do
  found=$(eval "$1" 2>/dev/null)
  printf 'look %s\n%s\n' "$?" "$found"
  sleep "$2"
done
]]

---@class kvr.Contamination
---@field state "clean"|"found"|"not looked for"
---@field why string? nothing was looked for
---@field command string?
---@field looks integer that succeeded
---@field failed integer that did not
---@field found string[] what was seen, each once

---@class kvr.Watch
local Watch = {}
Watch.__index = Watch

-- The process and all that it descends from.
local function ancestors(pid)
  local out = {}
  while pid and pid > 1 and not out[pid] do
    out[pid] = true
    local stat = store.read_file(("/proc/%d/stat"):format(pid))
    pid = stat and tonumber(stat:match("%) %a (%d+)"))
  end
  return out
end

local function is_ours(line, own)
  local pid = tonumber(line:match("^%s*(%d+)%f[^%d]"))
  if not pid then return false end
  local above = ancestors(pid)
  for _, each in ipairs(own) do
    if above[each] then return true end
  end
  return false
end

---@class kvr.ContaminationOptions
---@field command string? nvidia-smi, where there is one
---@field every_s number? 5
---@field own integer[]? process numbers of our engines
---@field cards boolean? false: our engines use none, so processes there say nothing

---@param options kvr.ContaminationOptions
---@return kvr.Watch
function M.start(options)
  local self = setmetatable({ command = options.command, own = options.own or {} }, Watch)
  if not self.command then
    if options.cards == false then
      self.why = "no command was given, and the engines use no card"
    elseif os.execute("command -v nvidia-smi >/dev/null 2>&1") ~= 0 then
      self.why = "no command was given, and there is no nvidia-smi"
    elseif #self.own == 0 then
      self.why = "which processes are ours is not known"
    else
      self.command = M.NVIDIA
    end
  end
  if not self.command then return self end
  local fd
  fd, self.path = stdlib.mkstemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-XXXXXX")
  assert(fd, self.path)
  unistd.close(fd)
  self.process = process.start({ "setsid", "sh", "-c", LOOK, "sh", self.command,
    tostring(options.every_s or M.EVERY_S), self.path })
  return self
end

---What looks have said: "look STATUS" and the findings, again and again. The last may be cut short.
---@param text string
---@param own integer[]
---@return kvr.Contamination
function M.read(text, own)
  local out = { looks = 0, failed = 0, found = {} }
  local seen, good = {}, false
  for line in text:gmatch("([^\n]*)\n") do
    local status = line:match("^look (%d+)$")
    if status then
      good = status == "0"
      out[good and "looks" or "failed"] = out[good and "looks" or "failed"] + 1
    elseif good and line:find("%S") and not seen[line] and not is_ours(line, own) then
      seen[line] = true
      if #out.found < M.NAMED then out.found[#out.found + 1] = line end
    end
  end
  out.state = #out.found > 0 and "found" or out.looks > 0 and "clean" or "not looked for"
  return out
end

---To be called while our engines still run: what descends from them is seen in /proc.
---@return kvr.Contamination
function Watch:finish()
  if not self.process then
    return { state = "not looked for", why = self.why, looks = 0, failed = 0, found = {} }
  end
  local out = M.read(store.read_file(self.path) or "", self.own)
  -- The command, too, if it is still looking: all of its session.
  signal.kill(-self.process.pid, signal.SIGKILL)
  self.process:finish(true)
  os.remove(self.path)
  out.command = self.command
  if out.looks == 0 then
    out.why = out.failed > 0 and "the command has failed" or "no look has ended in time"
  end
  return out
end

return M
