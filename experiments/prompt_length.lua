-- Question  Does the length of a prompt change which policy wins?
-- Method    The frozen point with turns of 112 to 896 nominal tokens (2.5 times as many real
--           ones; four turns of 896 reach 8,000). The working set stays 1.
-- Seed      1 to 5
-- Run       kvroute run experiments/prompt_length.lua --results experiments/results/prompt_length
-- Takes     20 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local lengths = { 112, 224, 448, 672 }

return study.experiment {
  name = "prompt_length",
  question = "does the length of a prompt change which policy wins?",
  axes = { { "tokens", unpack(lengths) } },
  ask = function(at)
    return { user_bytes = 4 * at.tokens, system_bytes = math.min(512, 2 * at.tokens) }
  end,
  seeds = 5,
  report = function(found)
    return study.matrices(found, { "goodput", "hit_rate", "ttft_p99_ms" }) .. "\n"
      .. study.margins(found, { { "prefix_affinity", "session_affinity" },
        { "prefix_affinity", "bounded_session_affinity" }, { "prefix_affinity", "prefix_hash" } })
  end,
  figures = function(found)
    local figure = lab.figure.over(found, "goodput", "tokens",
      { label = "nominal tokens of a user's turn (four bytes each)", log2 = true, min = 112,
        max = 672, ticks = lengths })
    figure.kind, figure.title = "lines", "Goodput by length of the turn, working set 1, no skew"
    return { goodput = figure }
  end,
}
