-- Question  Can one throttled card turn round when balancing the load pays?
-- Method    The first headline of the seed, withdrawn there: on six cards, one of them throttled,
--           least outstanding lost to round robin. Independent prompts of 2,048 bytes, as then,
--           near the fleet's limit (2.33 requests a second a card, evenly spaced), on six cards
--           whose fourth is slower by a factor, and on five alike; then the study's conversations.
-- Seed      1 to 9
-- Run       kvroute run experiments/throttled_card.lua --results experiments/results/throttled_card
-- Takes     15 seconds on two cores
local lab = require("kvroute")
local study = require("kvroute.study")

local PER_CARD = 14 / 6 -- requests a second
local KV_OF_CARD = 125952

-- "5 alike"; "1.7x": six cards, one of which takes 1.7 times as long.
local function cards(at)
  local alike = tonumber(at.cards:match("^(%d) alike"))
  if alike then return alike, 1 end
  return 6, tonumber(at.cards:match("^([%d.]+)x"))
end

local function fleet(at)
  local count, slow = cards(at)
  local slowdowns = {}
  for i = 1, count do slowdowns[i] = i == 4 and slow or 1 end
  return study.fleet({ replicas = count, slowdowns = slowdowns })
end

local function asked(at)
  local count = cards(at)
  if at.work == "conversations" then return { capacity_tokens = count * KV_OF_CARD } end
  return { rate = count * PER_CARD, turns = 1, sessions = 1000000, user_bytes = 2048,
    system_share = 0, branch_share = 0 }
end

-- What the slowest card let pass: of what it was sent, within the limits.
local function slow_card(found)
  local rows = {}
  for _, pools in ipairs(found:places()) do
    local row = { pools[1].place }
    for i, pool in ipairs(pools) do
      local sent, good, all = 0, 0, 0
      for _, result in ipairs(pool.results) do
        sent, good = sent + result.replicas[4].requests, good + result.replicas[4].good
        all = all + result.requests
      end
      row[2 * i] = ("%.0f %%"):format(100 * sent / all)
      row[2 * i + 1] = ("%.0f %%"):format(100 * good / sent)
    end
    rows[#rows + 1] = row
  end
  return lab.table.text({ title = "the fourth card: its share of requests, and how many of them "
    .. "were within the limits", rows = rows, head = { "work, cards", "round_robin\nshare",
    "round_robin\ngood", "least_outst.\nshare", "least_outst.\ngood" } })
end

local function bars(found, work, title)
  local figure = lab.figure.groups(found, "goodput", "cards",
    "cards; of six with a slow one: its factor", { at = { work = work } })
  figure.kind, figure.title = "bars", title
  return figure
end

return study.experiment {
  name = "throttled_card",
  question = "can one throttled card turn round when balancing the load pays?",
  axes = { { "work", "prompts", "conversations" },
    { "cards", "5 alike", "6 alike", "1.36x", "1.7x", "2x", "2.5x" } },
  fleet = fleet,
  ask = asked,
  measure = function(at) return at.work == "prompts" and study.open or study.closed end,
  policies = { "round_robin", "least_outstanding" },
  report = function(found)
    return study.matrices(found, { "goodput" }) .. "\n"
      .. study.margins(found, { { "least_outstanding", "round_robin" } }) .. "\n"
      .. slow_card(found)
  end,
  figures = function(found)
    return {
      prompts = bars(found, "prompts",
        "Independent prompts, 2.33 a second for each card"),
      conversations = bars(found, "conversations", "Conversations of 32 users who never pause"),
    }
  end,
}
