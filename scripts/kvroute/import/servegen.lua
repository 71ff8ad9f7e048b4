-- ServeGen: what each client of a service asked a second in windows of ten minutes, how bursty, and
-- how long its prompts and answers were. Rows are drawn from that; a client is a tenant.
--
-- A window is a renewal process with the published family and shape of gaps, and the mean that its
-- rate makes. It begins in the middle of a gap, so that on average it has rate x length arrivals
-- however bursty it is, and knows nothing of the window before.
local clock = require("kvroute.import.clock")
local dice = require("kvroute.import.dice")
local source_of = require("kvroute.import.source")

local M = {
  summary = "ServeGen: arrivals of clients drawn from rates, burstiness and lengths by window",
  options = {
    { "lengths", "FILE", "lengths by client; required" },
    { "scale", "X", "all rates times this; shares and burstiness stay", 0.001 },
    { "from-s", "S", "first moment, in seconds of the record; of the first window" },
    { "until-s", "S", "last moment; of the last window" },
    { "prefix-tokens", "N", "so many first tokens are the same in all prompts of a client", 0 },
  },
}

local HEADER = "client,window_start_s,rate_rps,cv,pattern,arg1,arg2"
local WINDOW_S = 600
local BLOCK_TOKENS = 16
local PREFIX_IDS = 2 ^ 20 -- ids set aside for the prefix of each client

---The busy windows of all clients, in the order of the file, as parameters of arrivals.
---@param source kvr.Source
---@return fun(): { client: integer, from_s: number, until_s: number, rate: number, cv: number,
---  family: string, shape: number }?
function M.windows(source)
  return function()
    while true do
      local cells = source:cells(HEADER)
      if not cells then return nil end
      local window = {
        client = source:whole_cell(cells[1], "client", 0, 2 ^ 20),
        from_s = source:number_cell(cells[2], "window_start_s", 0),
        rate = source:number_cell(cells[3], "rate_rps", 0),
        cv = source:number_cell(cells[4], "cv", 0),
        family = cells[5],
      }
      window.until_s = window.from_s + WINDOW_S
      if window.rate > 0 then
        if window.family ~= "Gamma" and window.family ~= "Weibull" then
          source:fail("pattern", "%q: there are Gamma and Weibull", window.family)
        end
        window.shape = source:number_cell(cells[6], "arg1", 1e-9)
        return window
      end
    end
  end
end

-- "{212: 0.25, 213: 0.75}" as values and their shares summed up so far. Nil when it is empty.
local function lengths_of(source, text, name)
  local values, sums, sum = {}, {}, 0
  local rest = source:text_of(text, name):gsub("(%d+): ([%d.e+-]+)[, ]*", function(length, share)
    if length ~= "0" then
      sum = sum + source:number_cell(share, name, 0)
      values[#values + 1], sums[#sums + 1] = tonumber(length), sum
    end
    return ""
  end)
  if rest ~= "{}" then source:fail(name, "%q is no length", rest:sub(1, 40)) end
  return sum > 0 and { values = values, sums = sums } or nil
end

-- One of the values, by its share.
local function draw(random, choice)
  local sums = choice.sums
  local want, low, high = random:uniform() * sums[#sums], 1, #sums
  while low < high do
    local middle = math.floor((low + high) / 2)
    if sums[middle] < want then low = middle + 1 else high = middle end
  end
  return choice.values[low]
end

-- Lengths by client, of those that have any.
local function read_lengths(path)
  local source = source_of.open(path)
  local object = source:object() or source:fail(nil, "is empty")
  local known = {}
  for client, fields in pairs(object) do
    local name = "client " .. client
    if type(fields) ~= "table" then source:fail(name, "is no object") end
    local input = lengths_of(source, fields.input_tokens, name .. ", input_tokens")
    local output = lengths_of(source, fields.output_tokens, name .. ", output_tokens")
    if input and output then
      known[tonumber(client)] = { input = input, output = output }
    end
  end
  if not next(known) then source:fail(nil, "no client has lengths") end
  return known
end

-- A client whose lengths are missing (the busiest ones' are) asks as the others do: each of its
-- requests has the lengths of another client, drawn by their rates in that time.
local function others_of(clients, from, to)
  local others = { values = {}, sums = {} }
  local sum = 0
  for _, client in ipairs(clients) do
    if client.lengths then
      for _, window in ipairs(client.windows) do
        local time = math.min(window.until_s, to) - math.max(window.from_s, from)
        sum = sum + window.rate * math.max(0, time)
      end
      others.values[#others.values + 1], others.sums[#others.sums + 1] = client.lengths, sum
    end
  end
  return sum > 0 and others or nil
end

-- Windows of each client in order, with the client's own dice: others do not change its arrivals.
local function read_clients(source, options, lengths)
  local clients, by_name = {}, {}
  local first, last = math.huge, 0
  for window in M.windows(source) do
    local client = by_name[window.client]
    if not client then
      client = {
        name = window.client, windows = {}, at = 1, lengths = lengths[window.client],
        random = dice.new(options.seed * 2 ^ 21 + window.client),
      }
      by_name[window.client] = client
      clients[#clients + 1] = client
    end
    local before = client.windows[#client.windows]
    if before and window.from_s < before.until_s then
      source:fail("window_start_s", "is %d in a window that began before", window.from_s)
    end
    client.windows[#client.windows + 1] = window
    first, last = math.min(first, window.from_s), math.max(last, window.until_s)
  end
  return clients, options["from-s"] or first, options["until-s"] or last
end

-- Moves a client to its next arrival: client.due in seconds of the record, nil behind the last one.
local function advance(client, scale, from, to)
  local due = client.due
  while client.windows[client.at] do
    local window = client.windows[client.at]
    local start, stop = math.max(window.from_s, from), math.min(window.until_s, to)
    if start < stop then
      local mean = 1 / (window.rate * scale)
      due = due and due + mean * client.random:gap(window.family, window.shape)
        or start + mean * client.random:rest_of_gap(window.family, window.shape)
      if due < stop then
        client.due = due
        return
      end
    end
    client.at, due = client.at + 1, nil
  end
  client.due = nil
end

local function row_of(client, others, from, prefix_tokens)
  local lengths = client.lengths or draw(client.random, others)
  local row = {
    at_ms = clock.rounded((client.due - from) * 1000),
    tenant = "c" .. client.name,
    input_tokens = draw(client.random, lengths.input),
    output_tokens = draw(client.random, lengths.output),
  }
  local shared = math.floor(math.min(prefix_tokens, row.input_tokens) / BLOCK_TOKENS)
  if shared > 0 then
    row.block_tokens, row.blocks = BLOCK_TOKENS, { { client.name * PREFIX_IDS, shared } }
  end
  return row
end

---@param source kvr.Source
function M.rows(source, options)
  if not options.lengths then error("servegen needs the lengths of its clients: --lengths", 0) end
  local scale = options.scale
  if scale <= 0 then error("--scale must be over 0", 0) end
  local clients, from, to = read_clients(source, options, read_lengths(options.lengths))
  local others = others_of(clients, from, to)
  if not others then error(options.lengths .. ": has no lengths of a busy client", 0) end
  for _, client in ipairs(clients) do advance(client, scale, from, to) end
  return function()
    local first
    for _, client in ipairs(clients) do
      if client.due and (not first or client.due < first.due) then first = client end
    end
    if not first then return nil end
    local row = row_of(first, others, from, options["prefix-tokens"])
    advance(first, scale, from, to)
    return row
  end
end

return M
