-- Everything that can happen to a router before emulated replicas, one thing after the other, drawn
-- from a seed: faults of engines, probes that fail, replicas drained, removed, added, weighed,
-- texts of policies saved, good and bad, switches, signals. Nothing of it may cost a request that
-- another replica could have answered, or be left behind.
local Fleet = require("e2e.support.fleet")
local Peers = require("e2e.support.peers")
local signal = require("posix.signal")

local M = {}
local Disturb = {}
Disturb.__index = Disturb

local FAULTS = {
  "reset;at=head", "reset;at=body", "reset;after=1", "reset;after=4", "reset;in=size",
  "close;at=head", "close;after=2", "close;in=data", "close;bytes=30", "error;after=2",
  "stall;at=body;ms=40", "stall;after=2;ms=60", "stall;at=head;ms=30", "stall;after=3;ms=5000",
  "cut;in=data", "drip;bytes=7", "status;code=500", "status;code=503", "status;code=429", "race",
  "race;orderly=1",
}
local FLAPS = {
  "status;path=/health;code=500", "stall;path=/health;ms=400", "reset;path=/health",
  "status;path=/v1/models;code=500", "reset;path=/metrics",
}
-- Short enough that the next one finds its replica back.
local OUTAGES = { "refuse;ms=60", "restart;ms=60" }

local function text(reason, body)
  return ('return { api = 1, name = "soak", needs = { "match" }, pick = function(request, view)\n'
    .. "  %s\n  return kvr.least(), %q, true\nend }\n"):format(body or "", reason)
end
M.policy = text("one")
local TEXTS = {
  M.policy, text("two", "if view.max_match_blocks > 3 then "
    .. "return kvr.least_matching(view.max_match_blocks), 'warm', true end"),
  text("nothing", "if request.serial % 5 == 0 then return nil end"),
  text("wrong", "if request.serial % 300 == 0 then return 99, 'x' end"),
  "return {", "error('no')", text("endless", "while true do end"),
}
local SWITCHES = {
  { "policy", "soak" }, { "policy", "prefix_affinity" }, { "policy", "p2c" },
  { "policy", "bounded_session_affinity" }, { "spill", "off" }, { "spill", "load_min" },
  { "spill", "" }, { "canary", "round_robin", 0.2 }, { "canary", "" },
}

---@param fleet table with the policy `soak` among its files
---@param emulator table its replicas
---@param capacity integer of each
function M.new(fleet, emulator, capacity, seed)
  return setmetatable({
    fleet = fleet, emulator = emulator, capacity = capacity, seed = seed,
    count = 0,    -- things that happened
    done = {},    -- of each kind
    drained = {}, -- addresses
    gone = nil,   -- index of the one that is no member
  }, Disturb)
end

function Disturb:below(n)
  self.seed = (self.seed * 1103515245 + 12345) % 2147483648
  return math.floor(self.seed / 65536) % n + 1
end

function Disturb:one_of(list) return list[self:below(#list)] end

-- A command that may be out of place just now (a drain of a replica that is not there).
function Disturb:try(path, body)
  self.fleet:admin_answer("/admin/" .. path, body)
end

local kinds = {}

function kinds.fault(self)
  pcall(self.emulator.fault, self.emulator,
    ("%s;times=%d"):format(self:one_of(FAULTS), self:below(3)), self:below(#self.emulator.urls))
end

function kinds.flap(self)
  pcall(self.emulator.fault, self.emulator,
    ("%s;times=%d"):format(self:one_of(FLAPS), self:below(3)), self:below(#self.emulator.urls))
end

function kinds.outage(self)
  pcall(self.emulator.fault, self.emulator, self:one_of(OUTAGES), self:below(#self.emulator.urls))
end

-- At most two at a time: refusals are so quick that they would be most of what happens.
function kinds.drain(self)
  local drained = self.drained
  if #drained == 2 or (#drained == 1 and self:below(2) == 1) then
    self:try("replicas/restore", { replica = table.remove(drained, 1) })
  else
    drained[#drained + 1] = self:one_of(self.emulator.addresses)
    self:try("replicas/drain", { replica = drained[#drained] })
  end
end

function kinds.weight(self)
  self:try("replicas/weight",
    { replica = self:one_of(self.emulator.addresses), weight = self:below(4) })
end

function kinds.member(self)
  if self.gone then
    self:try("replicas", { url = self.emulator.urls[self.gone], capacity = self.capacity })
    self.gone = nil
  else
    self.gone = self:below(#self.emulator.urls)
    self:try("replicas/remove", { replica = self.emulator.addresses[self.gone] })
  end
end

function kinds.text(self)
  local save = self:one_of({ Fleet.write, Fleet.replace })
  save(self.fleet:policy_path("soak"), self:one_of(TEXTS))
end

function kinds.switch(self)
  local role, name, share = unpack(self:one_of(SWITCHES))
  self:try(role, { name = name, share = share })
end

function kinds.hangup(self)
  self.fleet.router:signal(signal.SIGHUP)
end

local names = { "fault", "fault", "fault", "fault", "flap", "flap", "outage", "drain", "drain",
  "weight", "member", "text", "text", "switch", "hangup" }

---One thing that happens.
function Disturb:step()
  local name = self:one_of(names)
  kinds[name](self)
  self.count = self.count + 1
  self.done[name] = (self.done[name] or 0) + 1
  if self.count % 40 == 0 then self.emulator:heal() end
end

---Everybody is well again.
function Disturb:settle()
  self.emulator:heal()
  if self.gone then kinds.member(self) end
  for _, address in ipairs(self.emulator.addresses) do
    self:try("replicas/restore", { replica = address })
  end
  Fleet.write(self.fleet:policy_path("soak"), M.policy)
  Peers.command(self.fleet, "policy", { name = "soak" })
  Peers.command(self.fleet, "canary", { name = "" })
end

return M
