-- Brings traces of any known format into one form: a row a request (experiments/data/README.md).
--
--   local import = require("kvroute.import")
--   for row in import.rows("mooncake", "trace.jsonl.gz", { spread = "even" }) do ... end
--
-- Files are read a line at a time and rows made one by one: memory does not grow with a trace.
local lfs = require("lfs")
local command = require("kvroute.command")
local json = require("kvroute.json")
local clock = require("kvroute.import.clock")
local dice = require("kvroute.import.dice")
local source_of = require("kvroute.import.source")
local store = require("kvroute.store")

local M = {}

---@class kvr.TraceRow
---@field session string? requests of one session go one after another
---@field turn integer? within the session, from 1, rising
---@field tenant string?
---@field at_ms number? arrival since the trace's start, never falling
---@field think_ms number? since the end of the session's answer before; instead of at_ms
---@field input_tokens integer
---@field output_tokens integer
---@field block_tokens integer? tokens of a block
---@field input_bytes integer? of the prompt: lengths are then in bytes, and tokens follow
---@field block_bytes integer? with it: bytes of a block
---@field blocks integer[][]? ids of the prompt's blocks as runs { first, count }
---@field cached_tokens integer? what the recorded engine reported
---@field measured table? what the recorded engine took, ms
---@field user string? text that this request adds to the chat
---@field assistant string? the recorded answer

local NAMES = {
  "mooncake", "agentic", "servegen", "azure", "vllm", "miniswe", "offline", "tracelab", "lengths",
  "router", "rows",
}

-- What all formats have.
local COMMON = {
  { "limit", "N", "stop after so many rows" },
  { "max-input-tokens", "N", "leave out requests with longer prompts" },
  { "max-think-ms", "MS", "cut think times to this" },
  { "seed", "N", "of all that is drawn", 1 },
}

-- And those whose sessions wait for their answers.
local CLOSED = { { "start-gap-ms", "MS", "sessions begin so far apart, on average", 0 } }

local function format_of(name)
  for _, known in ipairs(NAMES) do
    if known == name then return require("kvroute.import." .. name) end
  end
  error(("unknown format %q; there are: %s"):format(tostring(name), table.concat(NAMES, ", ")), 0)
end

---The files of this library that a format's rows depend on.
---@param name string
---@return string[]
function M.sources(name)
  format_of(name)
  local out = {}
  for i, part in ipairs({ "", ".blocks", ".clock", ".dice", ".source", "." .. name }) do
    out[i] = assert(package.searchpath("kvroute.import" .. part, package.path))
  end
  return out
end

-- Options are { name, value, help, default }; these values are numbers, FILE and HOW are text, and
-- none makes it a flag.
local NUMBERS = { N = true, X = true, S = true, MS = true }

local function all_options(format)
  local out = {}
  for _, list in ipairs({ format.options, format.closed and CLOSED or {}, COMMON }) do
    for _, option in ipairs(list) do out[#out + 1] = option end
  end
  return out
end

local function options_of(format, name, given)
  local options, known = {}, {}
  for _, option in ipairs(all_options(format)) do
    known[option[1]] = true
    options[option[1]] = option[4]
  end
  for key, value in pairs(given or {}) do
    local dashed = key:gsub("_", "-")
    if not known[dashed] then error(("%s has no option %s"):format(name, key), 0) end
    options[dashed] = value
  end
  return options
end

-- Sessions that were recorded without a common clock, or that wait for their answers, are told
-- when to begin: the first row of each has an arrival instead of a think time. Gaps are
-- exponential.
local function start_sessions(gap_ms, seed)
  local random, at, session = dice.new(seed), 0, nil
  return function(row)
    if row.session == session then return end
    if session then at = at - gap_ms * math.log(random:uniform()) end
    session = row.session
    row.at_ms, row.think_ms = clock.rounded(at), nil
  end
end

---Rows of a trace, in order. Errors name file, line and field.
---@param format string
---@param paths string|string[] "-" is standard input; .gz is unpacked
---@param options table? of the format, like { spread = "even" }, and limit, max_input_tokens,
---max_think_ms, start_gap_ms, seed; underscores stand for dashes
---@return fun(): kvr.TraceRow?
function M.rows(format, paths, options)
  local module = format_of(format)
  local wanted = options_of(module, format, options)
  local next_row = module.rows(source_of.open(paths), wanted)
  local left = wanted.limit or math.huge
  local longest = wanted["max-input-tokens"] or math.huge
  local think = wanted["max-think-ms"] or math.huge
  local start = module.closed and start_sessions(wanted["start-gap-ms"], wanted.seed)
  return function()
    if left <= 0 then return nil end
    local row
    repeat row = next_row() until not row or row.input_tokens <= longest
    if not row then return nil end
    left = left - 1
    if start then start(row) end
    if row.think_ms and row.think_ms > think then row.think_ms = think end
    return row
  end
end

local function add_options(parser, format)
  for _, option in ipairs(all_options(format)) do
    local name, metavar, help, default = option[1], option[2], option[3], option[4]
    if not metavar then
      parser:flag("--" .. name, help)
    else
      if default then help = ("%s (%s)"):format(help, tostring(default)) end
      parser:option("--" .. name, help):argname(metavar)
        :convert(NUMBERS[metavar] and tonumber or tostring)
    end
  end
end

local function parser_of(name_of_program)
  local parser = require("argparse")(name_of_program,
    "Brings a trace into rows, one JSON line a request. experiments/data/README.md has the form.")
  command.dressed(parser):command_target("format")
  parser:require_command(true)
  for _, name in ipairs(NAMES) do
    local format = format_of(name)
    local one = parser:command(name, format.summary)
    one:argument("file", "one or more, read in turn; - is standard input, .gz is unpacked")
      :args("+")
    one:option("-o --out", "write here instead of to standard output"):argname("FILE")
    add_options(one, format)
  end
  return parser
end

local function write_rows(args, out)
  local options = {}
  for _, option in ipairs(all_options(format_of(args.format))) do
    options[option[1]] = args[option[1]:gsub("-", "_")]
  end
  for row in M.rows(args.format, args.file, options) do
    local ok, why = out:write(json.encode(row) .. "\n")
    if not ok then error(why, 0) end
  end
end

-- The file is the old one until the new one is whole, so it may be one of those that are read. What
-- is no file, as /dev/stdout, is written as it is.
local function write_file(args)
  local mode = lfs.attributes(args.out, "mode")
  if mode == nil or mode == "file" then
    local draft = store.draft(args.out)
    local ok, failure = pcall(write_rows, args, draft)
    if ok then return draft:keep() end
    draft:drop()
    error(failure, 0)
  end
  local out, why = io.open(args.out, "wb")
  if not out then error(why, 0) end
  write_rows(args, out)
  local closed, trouble = out:close()
  if not closed then error(trouble, 0) end
end

local function complain(status, what)
  io.stderr:write("error: ", tostring(what), "\n")
  return status
end

---The command: returns its exit status.
---@param argv string[]
---@param name string the program's, for its help
---@return integer
function M.main(argv, name)
  local parsed, args = parser_of(name):pparse(argv)
  if not parsed then return complain(2, args .. " (see --help)") end
  local ok, failure
  if args.out then
    ok, failure = pcall(write_file, args)
  else
    ok, failure = pcall(write_rows, args, io.stdout)
  end
  return ok and 0 or complain(1, failure)
end

return M
