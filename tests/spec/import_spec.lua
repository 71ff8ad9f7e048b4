-- Importers of traces: each trap of each format, and the shipped files against figures known of
-- them.
local cjson = require("cjson")
local import = require("kvroute.import")
local dice = require("kvroute.import.dice")
local json = require("kvroute.json")
local texts = require("spec.support.texts")

local COMMAND = (os.getenv("KVR_BUILD") or "build") .. "/kvroute import "
local DATA = "experiments/data/"
local MOONCAKE = DATA .. "mooncake-conversation/conversation_trace.first.jsonl.gz"
local TURNS = DATA .. "mooncake-conversation/derived_turns.first.csv.gz"
local AGENTIC = DATA .. "kv-cache-tester-agentic/sessions.odd.jsonl.gz"
local AZURE = DATA .. "azure-2023-conv/AzureLLMInferenceTrace_conv.csv.gz"
local RATES = DATA .. "servegen-rates/language_m-small.day2.rates.csv.gz"
local LENGTHS = DATA .. "servegen-rates/language_m-small.day2.noon_lengths.json.gz"
local OFFLINE = DATA .. "servegen-offline-excerpt/trace_a.first93.jsonl"
local TRACELAB = DATA .. "tracelab-example/round_trace.jsonl"
local MINISWE = DATA .. "agent-text-miniswe/miniswe.a.jsonl.gz"
local ARXIV = DATA .. "lengths-arxiv-summarization/arxiv_lengths.first5000.csv.gz"

local file_of = texts.file

local function lines_of(...)
  local out = {}
  for i = 1, select("#", ...) do
    local value = select(i, ...)
    out[i] = type(value) == "string" and value or cjson.encode(value)
  end
  return file_of(table.concat(out, "\n") .. "\n")
end

local function rows_of(...)
  local out = {}
  for row in import.rows(...) do out[#out + 1] = row end
  return out
end

local function fails(words, ...)
  local ok, why = pcall(rows_of, ...)
  assert.is_false(ok)
  assert.is_truthy(why:find(words, 1, true), why)
end

-- Hits of an endless cache by the rule that a run is named by its first id: leading common blocks
-- and no others. This is what core/sim/trace.h makes of runs.
local function endless()
  local longest = {}
  return function(runs)
    local hits, leading = 0, true
    for _, run in ipairs(runs) do
      local held = longest[run[1]] or 0
      if leading then hits = hits + math.min(held, run[2]) end
      leading = leading and held >= run[2]
      longest[run[1]] = math.max(held, run[2])
    end
    return hits
  end
end

local function count_of(runs)
  local count = 0
  for _, run in ipairs(runs or {}) do count = count + run[2] end
  return count
end

local function close_to(expected, share, value)
  assert.is_true(math.abs(value - expected) <= share * expected,
    ("%.4f is not near %.4f"):format(value, expected))
end

describe("files", function()
  teardown(texts.remove)

  local row = '{"input_tokens":%d,"output_tokens":1}'

  it("are read one after another, with any line ends, blank lines and a byte-order mark", function()
    local first = file_of("\239\187\191" .. row:format(1) .. "\r\n\n  \n" .. row:format(2))
    local second = file_of(row:format(3) .. "\n")
    local rows = rows_of("rows", { first, second })
    assert.are.same({ 1, 2, 3 },
      { rows[1].input_tokens, rows[2].input_tokens, rows[3].input_tokens })
    assert.are.equal(3, #rows)
  end)

  it("may be larger than what is read at once", function()
    local long = ('{"input_tokens":7,"output_tokens":1,"user":"%s"}'):format(("x"):rep(200000))
    local rows = rows_of("rows", file_of(long .. "\n" .. row:format(8) .. "\n" .. long))
    assert.are.equal(3, #rows)
    assert.are.equal(200000, #rows[3].user)
  end)

  it("that are no whole gzip file are refused", function()
    local good = io.open(ARXIV, "rb")
    local bytes = good:read("*a")
    good:close()
    fails("is no whole gzip file", "lengths", file_of(bytes:sub(1, #bytes / 2), ".gz"))
    fails("is no whole gzip file", "lengths", file_of("num_prefill", ".gz"))
  end)

  it("that are not there are named", function()
    fails("/nowhere/x.jsonl: No such file", "rows", "/nowhere/x.jsonl")
    fails("/nowhere/x.jsonl.gz: No such file", "rows", "/nowhere/x.jsonl.gz")
    fails("experiments: it is a directory", "rows", "experiments")
  end)

  it("with a quote in their name are no commands", function()
    local path = os.tmpname()
    local odd = path .. "'; touch x; '.jsonl"
    assert(os.rename(path, odd))
    texts.keep(odd)
    assert.are.same({}, rows_of("rows", odd))
    assert(os.execute(("gzip -k -- \"%s\""):format(odd)))
    texts.keep(odd .. ".gz")
    assert.are.same({}, rows_of("rows", odd .. ".gz"))
    assert.is_nil(io.open("x"))
  end)

  it("give errors with file, line and field", function()
    local path = file_of(row:format(1) .. "\n\n" .. row:format(0) .. "\n")
    fails(path .. ":3: input_tokens: is 0; allowed: 1 to", "rows", path)
    path = lines_of(row:format(1), '{"input_tokens":')
    fails(path .. ":2: ", "rows", path)
    path = lines_of("[1]")
    fails(path .. ":1: is no JSON object", "rows", path)
    path = lines_of('{"input_tokens":1.5,"output_tokens":1}')
    fails("input_tokens: is 1.5; a whole number is needed", "rows", path)
    path = lines_of('{"input_tokens":null,"output_tokens":1}')
    fails("input_tokens: is null; a number is needed", "rows", path)
    path = lines_of('{"input_tokens":"7","output_tokens":1}')
    fails('input_tokens: is "7"; a number is needed', "rows", path)
  end)

  it("give errors for what is not known", function()
    fails('unknown format "mooncakes"; there are: mooncake', "mooncakes", ARXIV)
    fails("lengths has no option spread", "lengths", ARXIV, { spread = "even" })
  end)

  it("are read in memory that does not grow", function()
    local paths = {}
    for i = 1, 12 do paths[i] = ARXIV end
    local count, low, high = 0, math.huge, 0
    for _ in import.rows("lengths", paths) do
      count = count + 1
      if count % 10000 == 0 then
        collectgarbage()
        collectgarbage()
        low = math.min(low, collectgarbage("count"))
        high = math.max(high, collectgarbage("count"))
      end
    end
    assert.are.equal(60000, count)
    -- Kept rows would take 7 MB; what the compiler keeps of its traces is counted, too.
    assert.is_true(high - low < 2048, high - low)
  end)
end)

describe("rows", function()
  local function check(words, text)
    fails(words, "rows", lines_of('{"input_tokens":64,"output_tokens":1,' .. text .. "}"))
  end

  it("hold what a row must", function()
    check("think_ms: needs a session", '"think_ms":1')
    check("think_ms: a row has this or at_ms", '"think_ms":1,"at_ms":1,"session":"s"')
    check("colour: is no field of a row", '"colour":1')
    check("block_tokens: is missing", '"blocks":[[1,1]]')
    check("blocks: two runs that are one", '"block_tokens":16,"blocks":[[1,1],[2,1]]')
    check("blocks: 5 ids; a prompt of 64 tokens has at most 4",
      '"block_tokens":16,"blocks":[[1,5]]')
    check("turn: is 0", '"turn":0')
  end)

  it("are cut by length, number and think time", function()
    local path = lines_of(
      { session = "s", at_ms = 0, input_tokens = 10, output_tokens = 1 },
      { session = "s", think_ms = 5000, input_tokens = 900, output_tokens = 1 },
      { session = "s", think_ms = 7000, input_tokens = 20, output_tokens = 1 },
      { session = "s", think_ms = 10, input_tokens = 30, output_tokens = 1 })
    local rows = rows_of("rows", path, { max_input_tokens = 100, max_think_ms = 60, limit = 2 })
    assert.are.equal(2, #rows)
    assert.are.equal(20, rows[2].input_tokens)
    assert.are.equal(60, rows[2].think_ms)
  end)
end)

describe("mooncake", function()
  local function request(at, input, ids)
    return { timestamp = at, input_length = input, output_length = 1, hash_ids = ids }
  end

  it("counts the partial last block: ids are ceil(input / 512)", function()
    local rows = rows_of("mooncake", lines_of(request(0, 1025, { 0, 1, 9 })))
    assert.are.same({ { 0, 2 }, { 9, 1 } }, rows[1].blocks)
    assert.are.equal(512, rows[1].block_tokens)
    fails("hash_ids: 2 ids; a prompt of 1025 tokens has 3 blocks of 512", "mooncake",
      lines_of(request(0, 1025, { 0, 1 })))
  end)

  it("has times in milliseconds that never fall", function()
    local rows = rows_of("mooncake", MOONCAKE)
    assert.are.equal(1767000, rows[#rows].at_ms)
    fails(":2: at_ms: is 1; allowed: 2 to", "rows", lines_of(
      { at_ms = 2, input_tokens = 1, output_tokens = 1 },
      { at_ms = 1, input_tokens = 1, output_tokens = 1 }))
  end)

  it("refuses ids that are not chained, unless told to chain them", function()
    local path = lines_of(request(0, 1024, { 4, 7 }), request(0, 1024, { 5, 7 }))
    fails(":2: hash_ids: 7 follows 5 here and 4 earlier: these ids are not chained", "mooncake",
      path)
    path = lines_of(request(0, 1536, { 4, 7, 8 }), request(0, 1536, { 5, 7, 8 }),
      request(0, 1024, { 4, 7 }))
    local rows = rows_of("mooncake", path, { unchained = true })
    local hits = endless()
    assert.are.equal(0, hits(rows[1].blocks))
    assert.are.equal(0, hits(rows[2].blocks)) -- 7 and 8 are known, behind other blocks
    assert.are.equal(2, hits(rows[3].blocks))
  end)

  it("spreads the requests of one instant over the time they were rounded to", function()
    local list = {}
    for i = 1, 3 do list[i] = request(0, 10, { i }) end
    for i = 4, 5 do list[i] = request(3000, 10, { i }) end
    list[6] = request(4000, 10, { 6 })
    local path = lines_of(unpack(list))
    local function times(options)
      local out = {}
      for i, row in ipairs(rows_of("mooncake", path, options)) do
        assert.are.equal(i, row.blocks[1][1])
        out[i] = row.at_ms
      end
      return out
    end
    assert.are.same({ 0, 0, 0, 3000, 3000, 4000 }, times())
    assert.are.same({ 0, 1000, 2000, 3000, 3500, 4000 }, times({ spread = "even" }))
    local drawn = times({ spread = "random", seed = 5 })
    assert.are.same(drawn, times({ spread = "random", seed = 5 }))
    assert.are_not.same(drawn, times({ spread = "random", seed = 6 }))
    for i = 2, 6 do assert.is_true(drawn[i] >= drawn[i - 1]) end
    assert.is_true(drawn[3] < 3000 and drawn[4] >= 3000 and drawn[5] < 4000 and drawn[6] >= 4000)
    fails("--spread wide: there are", "mooncake", path, { spread = "wide" })
  end)

  it("ships with the figures known of it", function()
    local hits, count, blocks, held, first, instants = endless(), 0, 0, 0, {}, 0
    local last, sessions, turns = -1, {}, 0
    for row in import.rows("mooncake", MOONCAKE, { turns = TURNS }) do
      count, blocks = count + 1, blocks + count_of(row.blocks)
      held = held + hits(row.blocks)
      first[row.blocks[1][1]] = true
      if row.at_ms > last then instants = instants + 1 end
      last = row.at_ms
      if not sessions[row.session] then turns = turns + 1 end
      sessions[row.session] = true
    end
    assert.are.equal(5606, count)
    assert.are.equal(144280, blocks)
    close_to(.3402, .0002, held / blocks)
    assert.are.equal(590, instants)       -- 89 % of gaps are none
    assert.are.same({ [0] = true }, first) -- a key of one block sends all to one replica
    assert.are.equal(3932, turns)
  end)

  it("says which line its side file lacks", function()
    local path = lines_of(request(0, 10, { 1 }), request(0, 10, { 2 }))
    local turns = file_of("row,derived_session,derived_turn,parent_row\n0,0,1,-1\n")
    fails(path .. ":2: " .. turns .. " has no row for it", "mooncake", path, { turns = turns })
    turns = file_of("row,derived_session,derived_turn,parent_row\n1,0,1,-1\n")
    fails(turns .. ":2: row: is 1 where 0 is due", "mooncake", path, { turns = turns })
    fails(":1: expected the header", "mooncake", path, { turns = file_of("a,b\n0,0\n") })
  end)
end)

describe("agentic", function()
  local function main(t, input, runs, more)
    local request = { t = t, type = "n", ["in"] = input, out = 5, hash_runs = runs, api_time = 2,
      think_time = 1 }
    for key, value in pairs(more or {}) do request[key] = value end
    return request
  end
  local function session(id, requests, tools)
    return { id = id, block_size = 64, hash_id_scope = "local", tool_tokens = tools or 64,
      system_tokens = 70, requests = requests }
  end

  it("gives each session ids of its own", function()
    local rows = rows_of("agentic", lines_of(
      session("a", { main(0, 200, { { 1, 3 } }) }), session("b", { main(0, 200, { { 1, 3 } }) })))
    local hits = endless()
    assert.are.equal(0, hits(rows[1].blocks))
    assert.are.equal(0, hits(rows[2].blocks))
    assert.are.same({ 0, 0 }, { rows[1].at_ms, rows[2].at_ms })
  end)

  it("shares heads of equal tools and system prompts when asked to", function()
    local path = lines_of(
      session("a", { main(0, 200, { { 1, 3 } }) }),
      session("b", { main(0, 200, { { 1, 3 } }), main(9, 200, { { 1, 1 }, { 7, 2 } }) }),
      session("c", { main(0, 200, { { 1, 3 } }) }, 65))
    local rows = rows_of("agentic", path, { shared_heads = true })
    local hits = endless()
    assert.are.equal(0, hits(rows[1].blocks))
    assert.are.equal(2, hits(rows[2].blocks)) -- floor((64 + 70) / 64)
    assert.are.equal(1, hits(rows[3].blocks)) -- it broke in the head
    assert.are.equal(0, hits(rows[4].blocks)) -- another pair
  end)

  it("keeps a head's ids apart from all others, even of a session that ends within it", function()
    local rows = rows_of("agentic", lines_of(
      session("a", { main(0, 64, { { 1, 1 } }), main(5, 64, { { 8, 1 } }) }, 256),
      session("b", { main(0, 320, { { 1, 5 } }) }, 256)), { shared_heads = true })
    local hits = endless()
    for i, expected in ipairs({ 0, 0, 1 }) do assert.are.equal(expected, hits(rows[i].blocks)) end
    local seen = {}
    for _, row in ipairs({ rows[2], rows[3] }) do
      for _, run in ipairs(row.blocks) do
        for id = run[1], run[1] + run[2] - 1 do
          assert.is_nil(seen[id])
          seen[id] = true
        end
      end
    end
  end)

  it("has floor(in / 64) ids and leaves the rest without", function()
    local rows = rows_of("agentic", lines_of(session("a", { main(0, 255, { { 1, 3 } }) })))
    assert.are.equal(3, count_of(rows[1].blocks))
    fails("requests[0].hash_runs: 4 ids; a prompt of 255 tokens has 3 full blocks of 64", "agentic",
      lines_of(session("a", { main(0, 255, { { 1, 4 } }) })))
  end)

  it("reads the published form with lists of ids alike", function()
    local ids, runs = {}, { { 1, 2 }, { 9, 3 } }
    for i, id in ipairs({ 1, 2, 9, 10, 11 }) do ids[i] = id end
    local lists = session("a", { main(0, 330, nil, { hash_ids = ids }) })
    assert.are.same(rows_of("agentic", lines_of(session("a", { main(0, 330, runs) }))),
      rows_of("agentic", file_of(cjson.encode(lists)))) -- one file, no line feed
  end)

  it("starts a sub-agent its duration before it returned, and lets the parent wait", function()
    local rows = rows_of("agentic", lines_of(session("a", {
      main(0, 64, { { 1, 1 } }),
      { t = 50, type = "subagent", duration_ms = 45000, requests = {
        main(0, 64, { { 50, 1 } }), main(40, 128, { { 50, 2 } }) } },
      main(53, 128, { { 1, 2 } }, { think_time = 51 }),
      main(60, 128, { { 1, 2 } }, { think_time = 4 }),
    })))
    local ids, thinks = {}, {}
    for i, row in ipairs(rows) do
      ids[i], thinks[i] = row.blocks[1][1], row.think_ms or -1
      assert.are.equal(i, row.turn)
    end
    assert.are.same({ 1, 50, 50, 1, 1 }, ids)
    -- 5 - 2, 45 - 7, 53 - 47, and what was recorded where nothing lies between
    assert.are.same({ -1, 3000, 38000, 6000, 4000 }, thinks)
  end)

  it("lets the parent go on beside a sub-agent in the background", function()
    local rows = rows_of("agentic", lines_of(session("a", {
      main(0, 64, { { 1, 1 } }),
      { t = 3, type = "subagent", duration_ms = cjson.null, requests = {
        main(0, 64, { { 50, 1 } }), main(10, 64, { { 50, 1 } }) } },
      main(4, 64, { { 1, 1 } }),
    })))
    local ids = {}
    for i, row in ipairs(rows) do ids[i] = row.blocks[1][1] end
    assert.are.same({ 1, 50, 1, 50 }, ids)
    assert.are.equal(0, rows[3].think_ms) -- it began before the one above ended
    assert.are.equal(7000, rows[4].think_ms)
  end)

  it("starts sessions as far apart as asked", function()
    local list = {}
    for i = 1, 400 do list[i] = session("s" .. i, { main(0, 64, { { 1, 1 } }),
      main(9, 64, { { 1, 1 } }) }) end
    local path = lines_of(unpack(list))
    local rows = rows_of("agentic", path, { start_gap_ms = 1000, seed = 3 })
    assert.are.equal(0, rows[1].at_ms)
    assert.is_nil(rows[1].think_ms)
    assert.are.equal(1000, rows[2].think_ms)
    assert.is_nil(rows[2].at_ms)
    close_to(399000, .15, rows[799].at_ms)
    assert.are.same(rows, rows_of("agentic", path, { start_gap_ms = 1000, seed = 3 }))
  end)

  it("refuses what it does not know", function()
    local global = session("a", {})
    global.hash_id_scope = "global"
    fails('hash_id_scope: is "global"; only "local" is known', "agentic", lines_of(global))
    fails("requests[1].t: is missing", "agentic",
      lines_of(session("a", { main(0, 64, { { 1, 1 } }), main(nil, 64, { { 1, 1 } }) })))
  end)

  it("ships with the figures known of it", function()
    local hits, sessions, count, blocks, held, tokens, longest = endless(), {}, 0, 0, 0, 0, 0
    local distinct, input, first = 0, 0, 0
    for row in import.rows("agentic", AGENTIC) do
      local has = count_of(row.blocks)
      local hit = hits(row.blocks)
      if not sessions[row.session] then
        distinct = distinct + 1
        if row.input_tokens then first = first + row.input_tokens end
      end
      sessions[row.session] = true
      count, blocks, held = count + 1, blocks + has, held + hit
      tokens, input = tokens + 64 * hit, input + row.input_tokens
      longest = math.max(longest, row.input_tokens)
    end
    assert.are.equal(350, distinct)
    assert.are.equal(24989 + 237, count)
    close_to(46.2e6, .001, blocks)
    close_to(1.75e6, .003, blocks - held) -- first seen: distinct ids
    close_to(.962, .001, tokens / input)
    assert.are.equal(880502, longest)
  end)
end)

describe("azure", function()
  local HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"

  it("takes differences of wall times to 100 ns, over midnight and the end of a month", function()
    local rows = rows_of("azure", file_of(HEADER .. "2023-11-30 23:59:59.9999999,374,44\n"
      .. "2023-12-01 00:00:00.0000001,396,109\n2024-03-01 00:00:00,1,0\n"))
    assert.are.equal(0, rows[1].at_ms)
    assert.are.equal(0.0002, rows[2].at_ms)
    assert.are.equal(91 * 86400000 + 0.0001, rows[3].at_ms)
    assert.is_nil(rows[1].blocks)
  end)

  it("names the cell that is wrong", function()
    fails(":2: TIMESTAMP: \"noon\" is no wall time", "azure", file_of(HEADER .. "noon,1,1\n"))
    fails(":2: ContextTokens: is \"1e3\"; a whole number is needed", "azure",
      file_of(HEADER .. "2023-11-30 23:59:59.9,1e3,1\n"))
    fails(":2: 2 cells, not 3", "azure", file_of(HEADER .. "2023-11-30 23:59:59.9,1\n"))
    fails(":3: TIMESTAMP: 2023-11-30 23:59:58 is before", "azure",
      file_of(HEADER .. "2023-11-30 23:59:59,1,1\n2023-11-30 23:59:58,1,1\n"))
    fails(":1: expected the header TIMESTAMP,", "azure", file_of("when,in,out\n"))
  end)

  it("ships with the figures known of it", function()
    local count, input, output, last = 0, 0, 0, 0
    for row in import.rows("azure", AZURE) do
      count, input, output = count + 1, input + row.input_tokens, output + row.output_tokens
      last = row.at_ms
    end
    assert.are.equal(19366, count)
    assert.are.equal(1155, math.floor(input / count + .5))
    assert.are.equal(211, math.floor(output / count + .5))
    assert.are.equal(3501721.937, last)
  end)
end)

describe("servegen", function()
  local HEADER = "client,window_start_s,rate_rps,cv,pattern,arg1,arg2\n"
  local lengths = '{"1":{"input_tokens":"{100: 0.25, 300: 0.75}","output_tokens":"{7: 1.0}"},'
    .. '"2":{"input_tokens":"{}","output_tokens":"{}"}}'

  it("draws as many arrivals as rates say, however bursty, and as bursty as shapes say", function()
    -- Shapes of gaps whose variation is known: 1 / sqrt(shape), and 1 for Weibull with shape 1.
    local cases = { { "Gamma", 1, 1 }, { "Gamma", .25, 2 }, { "Gamma", 25, .2 },
      { "Weibull", 1, 1 }, { "Weibull", .5, math.sqrt(5) } }
    for _, case in ipairs(cases) do
      local text = HEADER
      for window = 0, 99 do
        text = text .. ("1,%d,1,%g,%s,%g,0\n"):format(window * 600, case[3], case[1], case[2])
      end
      local rows = rows_of("servegen", file_of(text), { lengths = file_of(lengths), scale = 1 })
      close_to(60000, .05, #rows)
      local sum, squares = 0, 0
      for i = 2, #rows do
        local gap = rows[i].at_ms - rows[i - 1].at_ms
        sum, squares = sum + gap, squares + gap * gap
      end
      local mean = sum / (#rows - 1)
      close_to(case[3], .08, math.sqrt(squares / (#rows - 1) - mean * mean) / mean)
    end
  end)

  it("is quiet in idle windows, whose pattern is empty, and keeps shares when scaled", function()
    local text = HEADER .. "1,0,3,1,Gamma,1,0\n1,600,0,0,,0,0\n1,1200,3,1,Gamma,1,0\n"
      .. "2,0,1,1,Gamma,1,0\n2,600,0,0,,0,0\n2,1200,1,1,Gamma,1,0\n"
    local rows = rows_of("servegen", file_of(text), { lengths = file_of(lengths), scale = 2 })
    local ones = 0
    for _, row in ipairs(rows) do
      assert.is_true(row.at_ms < 600000 or row.at_ms >= 1200000)
      if row.tenant == "c1" then ones = ones + 1 end
    end
    close_to(2 * 4 * 1200, .05, #rows)
    close_to(.75, .05, ones / #rows)
  end)

  it("looks at part of the day", function()
    local text = HEADER
    for window = 0, 9 do text = text .. ("1,%d,1,1,Gamma,1,0\n"):format(window * 600) end
    local path = file_of(text)
    local part = rows_of("servegen", path,
      { lengths = file_of(lengths), scale = 1, from_s = 1800, until_s = 3600 })
    close_to(1800, .1, #part)
    assert.is_true(part[#part].at_ms < 1800000)
  end)

  it("draws lengths by their shares; a client without any takes another's", function()
    local text = HEADER .. "1,0,10,1,Gamma,1,0\n2,0,10,1,Gamma,1,0\n"
    local rows = rows_of("servegen", file_of(text), { lengths = file_of(lengths), scale = 1 })
    local short = { c1 = 0, c2 = 0 }
    for _, row in ipairs(rows) do
      assert.is_true(row.input_tokens == 100 or row.input_tokens == 300)
      assert.are.equal(7, row.output_tokens)
      if row.input_tokens == 100 then short[row.tenant] = short[row.tenant] + 1 end
    end
    close_to(.25 * 6000, .1, short.c1)
    close_to(.25 * 6000, .1, short.c2)
  end)

  it("gives the prompts of a client one start, and none to another's", function()
    local text = HEADER .. "1,0,1,1,Gamma,1,0\n2,0,1,1,Gamma,1,0\n"
    local rows = rows_of("servegen", file_of(text),
      { lengths = file_of(lengths), scale = 1, prefix_tokens = 160 })
    local of = {}
    for _, row in ipairs(rows) do
      assert.are.equal(1, #row.blocks)
      assert.are.equal(math.min(160, row.input_tokens) >= 160 and 10 or 6, row.blocks[1][2])
      of[row.tenant] = of[row.tenant] or row.blocks[1][1]
      assert.are.equal(of[row.tenant], row.blocks[1][1])
    end
    assert.are_not.equal(of.c1, of.c2)
  end)

  it("names what is wrong", function()
    fails("needs the lengths of its clients", "servegen", file_of(HEADER))
    fails(':2: pattern: "Pareto": there are', "servegen", file_of(HEADER .. "1,0,1,1,Pareto,1,0\n"),
      { lengths = file_of(lengths) })
    fails(":2: rate_rps: is \"x\"; a number", "servegen", file_of(HEADER .. "1,0,x,1,Gamma,1,0\n"),
      { lengths = file_of(lengths) })
    fails("client 1, input_tokens: ", "servegen", file_of(HEADER),
      { lengths = file_of('{"1":{"input_tokens":"{a: 1}","output_tokens":"{}"}}') })
  end)

  it("ships with the skew known of it", function()
    local of, count = {}, 0
    for row in import.rows("servegen", RATES, { lengths = LENGTHS }) do
      of[row.tenant] = (of[row.tenant] or 0) + 1
      count = count + 1
    end
    close_to(1138 * 86400 / 1000, .02, count)
    local shares = {}
    for _, n in pairs(of) do shares[#shares + 1] = n / count end
    table.sort(shares, function(a, b) return a > b end)
    close_to(.299, .05, shares[1])
    close_to(.788, .03, shares[1] + shares[2] + shares[3] + shares[4] + shares[5])
    -- Lengths are of the six hours from noon.
    local noon = { lengths = LENGTHS, from_s = 216000, until_s = 237600 }
    local input, output, asked = 0, 0, 0
    for row in import.rows("servegen", RATES, noon) do
      asked, input, output = asked + 1, input + row.input_tokens, output + row.output_tokens
    end
    close_to(168, .08, input / asked)
    close_to(19, .08, output / asked)
  end)
end)

describe("vllm", function()
  local function request(i, arrival, more)
    local out = { request_id = "bench-" .. i, input_toks = 40, output_toks = 3,
      arrival_time = 1787267980 + arrival, queued_ts = 27536.25, scheduled_ts = 27536.5,
      first_token_ts = 27537, last_token_ts = 27539 }
    for key, value in pairs(more or {}) do out[key] = value end
    return out
  end

  it("keeps its two clocks apart", function()
    local rows = rows_of("vllm", lines_of(
      '{"request_id":"bench-0","input_toks":40,"output_toks":3,"arrival_time":1787267980.0827403,'
      .. '"queued_ts":27536.660701067,"scheduled_ts":27536.660721646,'
      .. '"first_token_ts":27537.350135653,"last_token_ts":27554.231018618}',
      '{"request_id":"bench-1","input_toks":40,"output_toks":3,"arrival_time":1787267980.3478317,'
      .. '"queued_ts":3,"scheduled_ts":3,"first_token_ts":3,"last_token_ts":3}'))
    assert.are.equal(0, rows[1].at_ms)
    assert.are.equal(265.091, rows[2].at_ms)
    assert.are.equal(0.020579, rows[1].measured.queue_ms)
    assert.are.equal(689.434586, rows[1].measured.ttft_ms)
    assert.are.equal(17570.317551, rows[1].measured.e2el_ms)
  end)

  it("joins ids of full blocks by number, and who continues whom", function()
    local prompts = lines_of(
      { i = 0, input_length = 40, continues = -1, hash_ids = { 1, 2 } },
      { i = 1, input_length = 40, continues = -1, hash_ids = { 3, 4 } },
      { i = 2, input_length = 56, continues = 0, hash_ids = { 1, 2, 5 } })
    local requests = { request(0, 0), request(1, .1), request(2, .2, { input_toks = 56 }) }
    local rows = rows_of("vllm", lines_of(unpack(requests)), { prompts = prompts })
    assert.are.same({ { 1, 2 }, { 5, 1 } }, rows[3].blocks)
    assert.are.equal(rows[1].session, rows[3].session)
    assert.are.same({ 1, 1, 2 }, { rows[1].turn, rows[2].turn, rows[3].turn })
    assert.are_not.equal(rows[1].session, rows[2].session)
    fails("input_length: is 56; the request has 40", "vllm",
      lines_of(request(0, 0), request(1, 0), request(2, 0)), { prompts = prompts })
    fails("request_id: is not bench-1", "vllm", lines_of(request(0, 0), request(2, 0)))
    fails("first_token_ts: is 1; allowed: ", "vllm",
      lines_of(request(0, 0, { first_token_ts = 1 })))
  end)
end)

describe("miniswe", function()
  it("counts bytes of both sides and keeps the chat's text", function()
    local path = lines_of(
      { session_id = "a", turn = 1, timestamp_us = 5000000, append = ("x"):rep(160),
        output = ("y"):rep(80) },
      { session_id = "a", turn = 2, timestamp_us = 6500000, append = "\n\n" .. ("z"):rep(80),
        output = "end" },
      { session_id = "b", turn = 1, timestamp_us = 4000000, append = ("x"):rep(64), output = "" })
    local rows = rows_of("miniswe", path)
    assert.are.same({ 40, 80, 16 },
      { rows[1].input_tokens, rows[2].input_tokens, rows[3].input_tokens })
    assert.are.same({ 20, 1, 0 },
      { rows[1].output_tokens, rows[2].output_tokens, rows[3].output_tokens })
    assert.are.equal(("z"):rep(80), rows[2].user) -- without the two line feeds that join turns
    assert.are.equal(1500, rows[2].think_ms)
    assert.are.equal(0, rows[3].at_ms) -- its clock is earlier; sessions do not wait for each other
    local hits = endless()
    assert.are.equal(0, hits(rows[1].blocks))
    assert.are.equal(2, hits(rows[2].blocks))
    assert.are.equal(0, hits(rows[3].blocks))
    fails(":2: turn: is not 2", "miniswe", lines_of(
      { session_id = "a", turn = 1, timestamp_us = 5, append = "", output = "" },
      { session_id = "a", turn = 3, timestamp_us = 5, append = "", output = "" }))
  end)

  it("ships with the figures known of it", function()
    local count, sessions, input, longest = 0, 0, 0, 0
    for row in import.rows("miniswe", MINISWE, { bytes_per_token = 1 }) do
      count, input = count + 1, input + row.input_tokens
      if row.turn == 1 then sessions = sessions + 1 end
      longest = math.max(longest, row.input_tokens)
    end
    assert.are.same({ 224, 10 }, { count, sessions })
    assert.is_true(longest >= 150000)
  end)
end)

describe("offline", function()
  it("is all there at once and must be told how long answers are", function()
    fails("no lengths of answers: --output-tokens", "offline", OFFLINE)
    local hits, blocks, held, count = endless(), 0, 0, 0
    for row in import.rows("offline", OFFLINE, { output_tokens = 9 }) do
      assert.are.equal(0, row.at_ms)
      count, blocks, held = count + 1, blocks + count_of(row.blocks), held + hits(row.blocks)
    end
    assert.are.equal(93, count)
    close_to(.464, .002, held / blocks)
  end)

  it("knows no images", function()
    local line = { type = "text", input_length = 16, hash_ids = { 1 }, img_ids = { 3 } }
    fails("img_ids: prompts with images", "offline", lines_of(line), { output_tokens = 1 })
    line.type = "image"
    fails("type: only", "offline", lines_of(line), { output_tokens = 1 })
  end)
end)

describe("tracelab", function()
  local function round(session, index, at, input, cached)
    return { session_id = session, round_index = index, input_tokens_total = input,
      prefix_tokens = cached, output_tokens = 5, timing_events = {
        { timestamp = ("2026-06-01T05:40:%06.3fZ"):format(at) },
        { timestamp = ("2026-06-01T05:40:%06.3fZ"):format(at + 1) } } }
  end

  it("keeps what was reported apart from what prompts share", function()
    local rows = rows_of("tracelab", lines_of(round("s", 0, 1, 160, 64),
      round("s", 1, 5.5, 320, 32), round("s", 2, 7, 200, 96), round("t", 0, 0, 160, 0)))
    local hits = endless()
    assert.are.equal(0, hits(rows[1].blocks))
    assert.are.equal(10, hits(rows[2].blocks)) -- it grew; the provider had evicted most of it
    assert.are.equal(32, rows[2].cached_tokens)
    assert.are.equal(6, hits(rows[3].blocks)) -- it shrank: as much as was reported
    assert.are.equal(0, hits(rows[4].blocks))
    assert.are.equal(3500, rows[2].think_ms)
    assert.are.equal(500, rows[3].think_ms)
    assert.are.equal(0, rows[4].at_ms)
  end)

  it("ships with the figures known of it", function()
    local count, cached, input = 0, 0, 0
    for row in import.rows("tracelab", TRACELAB) do
      count, cached, input = count + 1, cached + row.cached_tokens, input + row.input_tokens
    end
    assert.are.equal(19, count)
    close_to(.921, .001, cached / input)
  end)
end)

describe("lengths", function()
  it("have no times, and sums that agree", function()
    local count, input, output = 0, 0, 0
    for row in import.rows("lengths", ARXIV) do
      count, input, output = count + 1, input + row.input_tokens, output + row.output_tokens
      assert.is_nil(row.at_ms)
      assert.is_nil(row.blocks)
    end
    assert.are.equal(5000, count)
    assert.are.equal(2565, math.floor(input / count + .5))
    assert.are.equal(305, math.floor(output / count + .5))
    fails(":2: num_total_tokens: is 9; the two before make 8", "lengths",
      file_of("num_prefill_tokens,num_decode_tokens,num_total_tokens,pd_ratio\n3,5,9,1\n"))
  end)
end)

describe("the command", function()
  local function run(arguments)
    local out = os.tmpname()
    texts.keep(out)
    local status = os.execute(COMMAND .. ("%s >%s 2>&1"):format(arguments, out))
    local file = io.open(out)
    local text = file:read("*a")
    file:close()
    return status == 0 or status == true, text
  end

  it("writes rows that it takes again unchanged", function()
    for _, arguments in ipairs({ "mooncake --spread even " .. MOONCAKE, "azure " .. AZURE,
      "tracelab " .. TRACELAB, "miniswe " .. MINISWE, "agentic --limit 900 " .. AGENTIC }) do
      local ok, text = run(arguments)
      assert.is_true(ok, text)
      local path = file_of(text)
      local _, again = run("rows " .. path)
      assert.is_true(text == again and #text > 1000)
    end
  end)

  it("leaves no half a file behind a bad line", function()
    local path = lines_of('{"input_tokens":1,"output_tokens":1}', '{"input_tokens":0}')
    local out = file_of("what was there\n")
    local ok, text = run(("rows %s -o %s"):format(path, out))
    assert.is_false(ok)
    assert.are.equal(
      ("error: %s:2: input_tokens: is 0; allowed: 1 to 16777216\n"):format(path), text)
    assert.are.equal("what was there\n", io.open(out):read("*a"))
    os.remove(out)
    assert.is_false((run(("rows %s -o %s"):format(path, out))))
    assert.is_nil(io.open(out))
  end)

  it("writes over a file that it reads, and to what is no file", function()
    local row = '{"input_tokens":1,"output_tokens":1}\n'
    local path = file_of(row .. row)
    assert.is_true((run(("rows %s --limit 1 -o %s"):format(path, path))))
    assert.are.equal(row, io.open(path):read("*a"))
    local ok, text = run(("rows %s -o /dev/stdout | cat"):format(path))
    assert.is_true(ok)
    assert.are.equal(row, text)
  end)

  it("lists formats and options, and refuses others", function()
    local _, text = run("--help")
    assert.is_truthy(text:find("servegen", 1, true))
    _, text = run("mooncake --help")
    assert.is_truthy(text:find("--spread", 1, true))
    local ok
    ok, text = run("mooncake --speed 3 x")
    assert.is_false(ok)
    assert.is_truthy(text:find("error: unknown option '--speed'", 1, true), text)
    assert.are.equal(2, os.execute(COMMAND .. "mooncakes x 2>/dev/null") / 256)
  end)

  it("reads standard input", function()
    local ok, text = run("rows - < " .. lines_of('{"input_tokens":1,"output_tokens":1}'))
    assert.is_true(ok)
    assert.are.equal('{"input_tokens":1,"output_tokens":1}\n', text)
  end)
end)

describe("rows of a router", function()
  local function row(at, sequence, rest)
    return ('{"started_ms":%s,"sequence":%d,"endpoint":"chat","session":"aa","routing_key":"bb",'
      .. '"blocks":%s}'):format(at, sequence, rest)
  end

  it("come in the order of their arrivals, with blocks in bytes", function()
    local path = lines_of(
      row("1500.5", 2, '2,"prompt_bytes":150,"estimated_tokens":37.5,"output_tokens":7,'
        .. '"chain":[[1,1],[3,1]]'),
      '{"started_ms":1400,"sequence":4,"endpoint":"other","blocks":0}',
      row("1600", 3, '0,"prompt_bytes":20,"estimated_tokens":5,"max_tokens":9'),
      row("1000", 1, '2,"prompt_bytes":130,"estimated_tokens":32,"prompt_tokens":40,"turn":1,'
        .. '"chain":[[1,2]]'))
    local rows = rows_of("router", path)
    assert.are.same({
      { at_ms = 0, session = "aa", tenant = "bb", turn = 1, input_tokens = 40, input_bytes = 130,
        output_tokens = 0, block_bytes = 64, blocks = { { 1, 2 } } },
      { at_ms = 500.5, session = "aa", tenant = "bb", input_tokens = 38, input_bytes = 150,
        output_tokens = 7, block_bytes = 64, blocks = { { 1, 1 }, { 3, 1 } } },
      { at_ms = 600, session = "aa", tenant = "bb", input_tokens = 5, input_bytes = 20,
        output_tokens = 9 },
    }, rows)
    -- And the row form takes them back.
    local lines = {}
    for i, each in ipairs(rows) do lines[i] = json.encode(each) end
    assert.are.same(rows, rows_of("rows", lines_of(unpack(lines))))
  end)

  it("may have wide blocks, which become ordinary ones with numbers of their own", function()
    -- Wide from 128 on: two blocks of 64 bytes, then some of 256.
    local wide = ',"wide_after":128'
    local rows = rows_of("router", lines_of(
      row("1", 1, '4,"prompt_bytes":700,"estimated_tokens":1,"chain":[[1,4]]' .. wide),
      row("2", 2, '4,"prompt_bytes":640,"estimated_tokens":1,"chain":[[1,3],[9,1]]' .. wide),
      row("3", 3, '1,"prompt_bytes":127,"estimated_tokens":1,"chain":[[1,1]]' .. wide)))
    local from = 2 ^ 51
    assert.are.same({ { 1, 2 }, { from + 12, 8 } }, rows[1].blocks)
    assert.are.same({ { 1, 2 }, { from + 12, 4 }, { from + 36, 4 } }, rows[2].blocks)
    assert.are.same({ { 1, 1 } }, rows[3].blocks)
    assert.equal(64, rows[1].block_bytes)
    -- Rows of an older router do not say it.
    local old = row("1", 1, '4,"prompt_bytes":700,"estimated_tokens":1,"chain":[[1,4]]')
    fails("blocks: 4 for a prompt of 700 bytes, which has 10 of 64 bytes: this router had another "
      .. "index.wide_after or index.block_bytes", "router", lines_of(old))
    assert.are.same(rows[1].blocks,
      rows_of("router", lines_of(old), { wide_after = 128 })[1].blocks)
    fails("wide_after: 256 bytes of a wide block are no multiple of block_bytes, 48", "router",
      lines_of(row("1", 1, '1,"prompt_bytes":60,"estimated_tokens":1,"chain":[[1,1]],'
        .. '"block_bytes":48' .. wide)))
    local small = row("1", 1, '2,"prompt_bytes":70,"estimated_tokens":1,"chain":[[1,2]],'
      .. '"block_bytes":32')
    assert.equal(32, rows_of("router", lines_of(small))[1].block_bytes)
  end)

  it("need their chains, and one process", function()
    local one = row("1", 1, '2,"prompt_bytes":150,"estimated_tokens":1')
    fails("chain: is missing", "router", lines_of(one))
    local empty = row("1", 1, '0,"prompt_bytes":15,"estimated_tokens":1')
    fails("two rows have the sequence 1", "router", lines_of(empty, empty))
  end)
end)

describe("dice", function()
  it("have the moments of what they draw", function()
    local random, n = dice.new(9), 200000
    for _, shape in ipairs({ .3, 1, 7.5 }) do
      local sum, squares = 0, 0
      for _ = 1, n do
        local value = random:gamma(shape)
        sum, squares = sum + value, squares + value * value
      end
      close_to(shape, .02, sum / n)
      close_to(shape, .05, squares / n - (sum / n) ^ 2)
    end
    for _, family in ipairs({ "Gamma", "Weibull" }) do
      local gaps, rests, squares = 0, 0, 0
      for _ = 1, n do
        local gap = random:gap(family, .7)
        gaps, squares = gaps + gap, squares + gap * gap
        rests = rests + random:rest_of_gap(family, .7)
      end
      close_to(1, .02, gaps / n)
      close_to(squares / gaps / 2, .03, rests / n) -- the inspection paradox
    end
  end)

  it("are the same for a seed", function()
    assert.are.equal(json.encode({ dice.new(1):uniform() }), json.encode({ dice.new(1):uniform() }))
    assert.are_not.equal(dice.new(1):uniform(), dice.new(2):uniform())
  end)
end)
