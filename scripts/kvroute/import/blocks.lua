-- Block ids of prompts, as runs of consecutive ids: { { first, count }, ... }. Ids of rows are
-- chained: equal id, equal whole prefix up to the end of that block.
local bit = require("bit")

-- Ids whose predecessor is remembered, to see that they are chained.
local M = { CHECKED_MAX = 2 ^ 20 }

---Appends ids to runs; neighbours join, so that equal prompts have equal runs.
function M.add(runs, first, count)
  local last = runs[#runs]
  if last and last[1] + last[2] == first then
    last[2] = last[2] + count
  elseif count > 0 then
    runs[#runs + 1] = { first, count }
  end
end

---How many ids these are.
function M.count(runs)
  local count = 0
  for _, run in ipairs(runs) do count = count + run[2] end
  return count
end

---How many blocks a prompt has: with the partial last one, or without.
function M.of_tokens(tokens, block_tokens, partial)
  return (partial and math.ceil or math.floor)(tokens / block_tokens)
end

-- An id for `id` behind the chain `parent`: 53 bits of splitmix64 over both.
local function chained(parent, id)
  local z = (parent * 0x9e3779b97f4a7c15ULL) + id + 0x9e3779b97f4a7c15ULL
  z = bit.bxor(z, bit.rshift(z, 30)) * 0xbf58476d1ce4e5b9ULL
  z = bit.bxor(z, bit.rshift(z, 27)) * 0x94d049bb133111ebULL
  return tonumber(bit.rshift(bit.bxor(z, bit.rshift(z, 31)), 11))
end

---@class kvr.BlockListOptions
---@field block_tokens integer
---@field partial boolean the partial last block has an id
---@field unchained boolean? ids name single blocks: they are made chained here

---Reads lists of ids, one a prompt. Returns a function (value, name, tokens) -> runs, which ends
---in an error where a list has not as many ids as the prompt has blocks, or where ids that should
---be chained are not: an id has one predecessor, whatever the request.
---@param source kvr.Source
---@param options kvr.BlockListOptions
function M.reader(source, options)
  local before, known = {}, 0
  local function check(name, parent, id)
    local seen = before[id]
    if seen and seen ~= parent then
      source:fail(name, "%d follows %d here and %d earlier: these ids are not chained", id, parent,
        seen)
    elseif not seen and known < M.CHECKED_MAX then
      before[id], known = parent, known + 1
    end
  end
  return function(value, name, tokens)
    local ids, runs, parent = source:list_of(value, name), {}, -1
    local want = M.of_tokens(tokens, options.block_tokens, options.partial)
    if #ids ~= want then
      source:fail(name, "%d ids; a prompt of %d tokens has %d blocks of %d", #ids, tokens, want,
        options.block_tokens)
    end
    for i = 1, #ids do
      local id = source:whole(ids[i], name, 0)
      if options.unchained then
        id = chained(parent, id)
      else
        check(name, parent, id)
      end
      M.add(runs, id, 1)
      parent = id
    end
    return runs
  end
end

return M
