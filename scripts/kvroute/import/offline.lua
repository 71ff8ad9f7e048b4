-- ServeGen's offline batches: input_length and the ids of all 16-token blocks with the partial last
-- one. All are there at once, and nothing is known of the answers, so their length must be given.
local blocks = require("kvroute.import.blocks")

local M = {
  summary = "ServeGen offline batches: all at once, one shared start",
  options = { { "output-tokens", "N", "length of every answer; required" } },
}

local BLOCK_TOKENS = 16

---@param source kvr.Source
function M.rows(source, options)
  local output = options["output-tokens"]
  if not output then error("this trace has no lengths of answers: --output-tokens", 0) end
  local runs_of = blocks.reader(source, { block_tokens = BLOCK_TOKENS, partial = true })
  return function()
    local line = source:object()
    if not line then return nil end
    if line.type ~= "text" then source:fail("type", "only \"text\" is known") end
    if #source:list_of(line.img_ids, "img_ids") > 0 then
      source:fail("img_ids", "prompts with images are not known")
    end
    local input = source:whole(line.input_length, "input_length", 1)
    return {
      at_ms = 0, input_tokens = input, output_tokens = output, block_tokens = BLOCK_TOKENS,
      blocks = runs_of(line.hash_ids, "hash_ids", input),
    }
  end
end

return M
