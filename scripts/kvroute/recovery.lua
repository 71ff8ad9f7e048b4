-- What a fault costs: goodput over time, in buckets by when a request was sent, seconds from the
-- fault. Buckets begin at multiples of their length, so the fault itself begins one.
--
--   local curve = Recovery.new { fault_s = 100, warmup_s = 50, end_s = 300, bucket_s = 5 }
--   curve:see(sent_s, good)
--   curve:finish()
--
-- Requests sent before the warm-up's end count nowhere. Those sent at the end or later (a driver's
-- last one may be due a moment after) belong to the last bucket: a bucket of its own would hold one
-- request and look like a second fault. Buckets without requests are kept: they are the fault.
local M = { TOLERANCE = 0.1 }

---@class kvr.Recovery
local Recovery = {}
Recovery.__index = Recovery

---@class kvr.RecoveryPlan
---@field fault_s number since the start
---@field warmup_s number
---@field end_s number
---@field bucket_s number
---@field tolerance number? 0.1 of the baseline

---@param plan kvr.RecoveryPlan
---@return kvr.Recovery
function M.new(plan)
  for _, name in ipairs({ "fault_s", "warmup_s", "end_s" }) do
    if plan[name] % plan.bucket_s ~= 0 then
      error(("recovery: %s is no multiple of the bucket of %g s"):format(name, plan.bucket_s), 2)
    end
  end
  if not (plan.warmup_s + plan.bucket_s < plan.fault_s and plan.fault_s < plan.end_s) then
    error("recovery: the warm-up and a bucket end before the fault, the fault before the end", 2)
  end
  local self = setmetatable({ plan = plan, good = {}, sent = {} }, Recovery)
  self.first = (plan.warmup_s - plan.fault_s) / plan.bucket_s
  self.last = (plan.end_s - plan.fault_s) / plan.bucket_s - 1
  for i = self.first, self.last do self.good[i], self.sent[i] = 0, 0 end
  return self
end

---Requests that were sent then, and how many of them were good.
---@param sent_s number since the start
---@param sent integer
---@param good integer
function Recovery:add(sent_s, sent, good)
  if sent_s < self.plan.warmup_s then return end
  local i = math.min(math.floor((sent_s - self.plan.fault_s) / self.plan.bucket_s), self.last)
  self.sent[i] = self.sent[i] + sent
  self.good[i] = self.good[i] + good
end

---@param sent_s number since the start
---@param good boolean
function Recovery:see(sent_s, good)
  self:add(sent_s, 1, good and 1 or 0)
end

---@class kvr.RecoveryCurve
---@field buckets {from_s: number, goodput: number, sent: integer}[] from_s: since the fault
---@field baseline number mean goodput before; the bucket next to the fault is not of it
---@field trough number lowest after the fault
---@field trough_s number where, since the fault
---@field deficit number good requests that are missing
---@field steady_s number? from here on all is within the tolerance; nil: it never is again

---@return kvr.RecoveryCurve
function Recovery:finish()
  local width, out = self.plan.bucket_s, { buckets = {} }
  local sum, count = 0, 0
  for i = self.first, self.last do
    out.buckets[#out.buckets + 1] = {
      from_s = i * width, goodput = self.good[i] / width, sent = self.sent[i],
    }
    -- Requests sent just before the fault are in flight when it comes.
    if i < -1 then sum, count = sum + self.good[i] / width, count + 1 end
  end
  out.baseline = sum / count
  out.trough, out.deficit = math.huge, 0
  local enough = out.baseline * (1 - (self.plan.tolerance or M.TOLERANCE))
  local steady = self.last + 1
  for i = self.last, -1, -1 do
    local goodput = self.good[i] / width
    if goodput <= out.trough then out.trough, out.trough_s = goodput, i * width end
    out.deficit = out.deficit + math.max(0, out.baseline - goodput) * width
    if goodput >= enough and steady == i + 1 then steady = i end
  end
  if steady <= self.last then out.steady_s = steady * width end
  return out
end

return M
