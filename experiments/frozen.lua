-- Question  What does each policy get out of the same five cards and the same 32 users?
-- Method    The seed's frozen comparison: working set 1, no skew, 300 s cells, the first 50 s
--           dropped. Beside the medians that were measured on the real cards.
-- Seed      1 to 9
-- Run       kvroute run experiments/frozen.lua --results experiments/results/frozen
-- Takes     10 seconds on two cores
local study = require("kvroute.study")
local measured = require("kvroute.measured")

local policies = {
  "round_robin", "least_outstanding", "session_affinity", "bounded_session_affinity",
  "prefix_hash", study.off, "prefix_affinity",
}

-- Simulated and measured beside each other.
local function figure(found)
  local series = {}
  for i, policy in ipairs(found:policies()) do
    local pool = found:find(policy)
    local least, most = pool:range("goodput")
    local real = measured.at(policy, 1, 0)
    series[i] = {
      name = policy,
      values = {
        { y = pool:value("goodput"), low = least, high = most },
        real and { y = real.goodput, low = real.low or real.goodput,
          high = real.high or real.goodput } or false,
      },
    }
  end
  return {
    kind = "bars", title = "Goodput of 32 users on five cards, working set 1, no skew",
    note = "TTFT < 990 ms and the request's median gap < 24 ms; lines: range of repetitions",
    groups = { "emulated", "measured" }, y = { label = "goodput (requests/s)" }, series = series,
  }
end

return study.experiment {
  name = "frozen",
  question = "what does each policy get out of the same cards and users?",
  policies = policies,
  show = {
    metrics = {
      "goodput", "throughput", "hit_rate", "ttft_p50_ms", "ttft_p99_ms", "itl_p50_ms",
      "recomputed", "spill_rate", "cold_share", "deflected_share", "busiest_share", "honoured",
    },
    baseline = "session_affinity",
  },
  figures = function(found)
    return {
      goodput = figure(found),
    }
  end,
}
