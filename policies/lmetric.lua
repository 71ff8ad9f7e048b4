-- LMetric: the available replica with the least product of
--   tokens to be prefilled there before this request's first token, and
--   requests in flight there, with this one.
-- Ties go to the first from a start that rotates. A factor of either term would cancel when two
-- products are compared, so there is none to tune.
--
-- The guard is the paper's. A class is the requests with the same leading `class_blocks` blocks; x
-- is its share of recent requests, M the available replicas that hold these blocks. While
-- x / (1 - x) > |M| / |not M| the product may pile the class on M: once 2|M| of its requests in a
-- row have gone there, M is left out, until that is over or the product itself leads elsewhere. The
-- window of x is the router's 60 s. The runs of 64 classes are kept, by their keys modulo 64.

---@type kvr.Policy
local P = {
  api = 1,
  name = "lmetric",
  needs = { "match", "openings" },
  params = {
    class_blocks = 4, -- 1, 2, 4, ... or 512; 0: no guard
  },
}

local PLACES = 64
local class_of, run_of = {}, {} -- by place: key of a class, its requests in a row to M
for place = 1, PLACES do class_of[place], run_of[place] = 0, 0 end
local class_blocks

function P.init(params)
  class_blocks = params.class_blocks
  assert(class_blocks == 0 or class_blocks >= 1 and 512 % class_blocks == 0,
    "class_blocks must be 0 or a power of two up to 512")
end

-- Of the rows that match fewer than `blocks` blocks.
local function least_product(request, view, blocks)
  local best, least = nil, math.huge
  for step = 0, view.count - 1 do
    local i = (request.serial + step) % view.count
    if view[i].available and view[i].match_blocks < blocks then
      local product = math.max(1, view[i].prefill_tokens) * (view[i].in_flight + 1)
      if not best or product < least then best, least = i, product end
    end
  end
  return best
end

-- Has the class gone to its holders too often? Takes note of this request.
local function piles_up(request, view, to_holder)
  local holders = 0
  for i = 0, view.count - 1 do
    if view[i].available and view[i].match_blocks >= class_blocks then holders = holders + 1 end
  end
  local x, others = kvr.opening_share(class_blocks), view.available - holders
  local key = request:block(class_blocks - 1)
  local place = key % PLACES + 1
  local run = class_of[place] == key and run_of[place] or 0
  run = to_holder and x * others > (1 - x) * holders and run + 1 or 0
  class_of[place], run_of[place] = key, run
  return run > 2 * holders
end

function P.pick(request, view)
  local best = least_product(request, view, math.huge)
  local guarded = best and class_blocks > 0 and request.chain_len >= class_blocks
  if guarded and piles_up(request, view, view[best].match_blocks >= class_blocks) then
    return least_product(request, view, class_blocks), "hot_prefix"
  end
  return best, "lmetric"
end

function P.export() return { class_of = class_of, run_of = run_of } end

function P.import(state) class_of, run_of = state.class_of, state.run_of end

return P
