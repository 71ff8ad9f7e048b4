-- Question  Where does balancing the load stop to pay, since every card is too deep for the limits?
-- Method    The frozen point from 32 to 192 users. A card that decodes more than some 25 requests
--           misses the limit of 24 ms between tokens: level loads miss it on all cards at once, a
--           ring's uneven ones leave some card below it.
-- Seed      1 to 9
-- Run       kvroute run experiments/concurrency_crossover.lua --results DIR
-- Takes     1 minute on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local users = { 32, 48, 64, 80, 96, 112, 128, 160, 192 }
local policies = { "round_robin", "least_outstanding", "session_affinity",
  "bounded_session_affinity", "prefix_affinity" }

return study.experiment {
  name = "concurrency_crossover",
  question = "where does balancing the load stop to pay?",
  axes = { { "users", unpack(users) } },
  ask = function(at) return { users = at.users } end,
  policies = policies,
  report = function(found)
    return study.matrices(found, { "goodput", "slow_share", "busiest_share" }) .. "\n"
      .. study.margins(found, { { "prefix_affinity", "session_affinity" } })
  end,
  figures = function(found)
    local figure = lab.figure.over(found, "goodput", "users",
      { label = "users", min = 32, max = 192, ticks = users })
    figure.kind, figure.title = "lines", "Goodput beyond saturation, working set 1, no skew"
    return { goodput = figure }
  end,
}
