-- kvroute load as benches and tests use it: a rate that is kept whatever happens, prompts of one
-- length, each a text that four share in its first half, and whole answers.
local M = {}

---@param binary string kvroute
---@param url string
---@param options {rate: number, seconds: number, bytes: integer, prompts: integer} so many
---  different prompts, drawn at random
---@return string[] argv its report is a JSON object on stdout
function M.argv(binary, url, options)
  local half = options.bytes / 2
  return {
    binary, "load", url, "--model", "bench", "--no-stream", "--quiet", "--json",
    "--percentiles", "50,99",
    "--rate", ("%.17g"):format(options.rate), "-d", ("%.17g"):format(options.seconds),
    "-s", "kind=keys", "-s", ("keys=%d"):format(options.prompts / 4), "-s", "weight_power=0",
    "-s", "bytes_per_token=1", "-s", "template_tokens=0", "-s", "unique_tokens=0",
    "-s", ("context_tokens=%d"):format(half), "-s", "variants=4",
    "-s", ("variant_tokens=%d"):format(half), "-s", "output_tokens=8",
  }
end

return M
