-- Question  Does the length of a conversation change which policy wins?
-- Method    The frozen point with 1 to 6 turns of the usual length (the model's 8,192 tokens end
--           there) and with 1 to 16 turns whose text together stays that of four; the working set
--           stays 1, so longer conversations are fewer.
-- Seed      1 to 5
-- Run       kvroute run experiments/turns.lua --results experiments/results/turns
-- Takes     30 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local USUAL, FOUR_TURNS = 1792, 4 * 1792 -- bytes a user says in a turn

-- "long 6": six turns of the usual length; "split 16": the text of four turns in sixteen.
local function asked(at)
  local kind, turns = at.conversation:match("(%a+) (%d+)")
  turns = tonumber(turns)
  local bytes = kind == "long" and USUAL or FOUR_TURNS / turns
  return { turns = turns, user_bytes = bytes, system_bytes = math.min(512, bytes / 2) }
end

local function panel(found, kind, title)
  return lab.figure.over(found, "goodput", function(at)
    return at.conversation:find(kind) and tonumber(at.conversation:match("%d+"))
  end, { label = "turns of a conversation", log2 = true, min = 1, max = kind == "long" and 6 or 16,
    ticks = kind == "long" and { 1, 2, 3, 4, 6 } or { 1, 2, 4, 8, 16 } }, { title = title })
end

return study.experiment {
  name = "turns",
  question = "does the length of a conversation change which policy wins?",
  axes = { { "conversation", "long 1", "long 2", "long 3", "long 4", "long 6",
    "split 1", "split 2", "split 4", "split 8", "split 16" } },
  ask = asked,
  seeds = 5,
  report = function(found)
    return study.matrices(found, { "goodput", "hit_rate" }) .. "\n"
      .. study.margins(found, { { "prefix_affinity", "session_affinity" },
        { "prefix_affinity", "bounded_session_affinity" }, { "prefix_affinity", "prefix_hash" } })
  end,
  figures = function(found)
    return { goodput = { kind = "lines", title = "Goodput by turns, working set 1, no skew",
      panels = { panel(found, "long", "turns of 448 nominal tokens"),
        panel(found, "split", "the text of four such turns, split") } } }
  end,
}
