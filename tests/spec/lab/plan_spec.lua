local cjson = require("cjson")
local plan = require("kvroute.plan")
local texts = require("spec.support.texts")

local COMMAND = (os.getenv("KVR_BUILD") or "build") .. "/kvroute plan "

local file_of = texts.file

local function run(words)
  local pipe = assert(io.popen(COMMAND .. words .. " 2>&1; echo $?"))
  local text, status = pipe:read("*a"):match("^(.*)(%d)\n$")
  pipe:close()
  return text, tonumber(status)
end

local function equal(n)
  local out = {}
  for i = 1, n do out[i] = { name = tostring(i - 1), weight = 1 } end
  return out
end

local function rates_of(text)
  local out = {}
  for key, rate in text:gmatch("(%w+)=([%d.]+)") do
    out[#out + 1] = { key = key, rate = tonumber(rate) }
  end
  return out
end

local function placements(made)
  local out = {}
  for _, entry in ipairs(made.entries) do out[entry.key] = table.concat(entry.to, " ") end
  return out
end

describe("a plan", function()
  teardown(texts.remove)

  it("places by falling rate, each on the least loaded", function()
    local made = plan.make(rates_of("a=4 b=7 c=5 d=6 e=3"), equal(2), { slots = 2 })
    assert.same({ b = "0", d = "1", c = "1", a = "0" }, placements(made))
    assert.equal("b d c a", made.entries[1].key .. " " .. made.entries[2].key .. " "
      .. made.entries[3].key .. " " .. made.entries[4].key)
    assert.same({ name = "0", weight = 1, load = 12.5, keys = 2 }, made.destinations[1])
    assert.equal(3, made.tail_rate)
    assert.equal(1, made.imbalance)
  end)

  it("gives a hot key several destinations, and skips what does not fit if told so", function()
    local rates = rates_of("a=9 b=8 c=3")
    assert.same({ a = "0 1 2" }, placements(plan.make(rates, equal(4), { q_cap = 3, slots = 1 })))
    local made = plan.make(rates, equal(4), { q_cap = 3, slots = 1, skip = true })
    assert.same({ a = "0 1 2", c = "3" }, placements(made))
    assert.equal(1, made.split)
    assert.equal(4, made.copies)
  end)

  it("keeps the order of the file among equal rates", function()
    assert.same({ z = "0", a = "1" },
      placements(plan.make(rates_of("z=1 a=1 m=1"), equal(2), { slots = 1 })))
  end)

  it("has the churn of sets of placements", function()
    local made = plan.make(rates_of("a=4 b=3 c=2"), equal(3), {})
    assert.same({ placements = 0, counts = 0, kept = 3, added = 0, removed = 0 },
      plan.churn({ a = { "0" }, b = { "1" }, c = { "2" } }, made))
    -- a stays and loses a copy, b moves, c comes, d goes: 1 kept of 6.
    local churn = plan.churn({ a = { "0", "1" }, b = { "2" }, d = { "2" } }, made)
    assert.near(1 - 1 / 6, churn.placements, 1e-12)
    assert.same({ 1, 2, 3 }, { churn.kept, churn.added, churn.removed })
    assert.equal(0.5, churn.counts)
    assert.equal(0, plan.churn({}, plan.make({}, equal(1), {})).placements)
  end)

  it("is read again as it was written", function()
    local made = plan.make(rates_of("a=9 b=0.1 c=2"), equal(3), { q_cap = 4 })
    local text = plan.csv(made)
    assert.equal("# kvroute plan 2, 3 keys\nkey,rate,destinations\na,9,0 1 2\n", text:sub(1, 57))
    local read, whole = plan.read(file_of(text))
    assert.same({ a = { "0", "1", "2" }, c = { "0" }, b = { "1" } }, read)
    assert.is_true(whole)
    assert.equal(0, plan.churn(read, made).placements)
  end)

  it("that has been cut, or is empty, is refused; version 1 does not tell", function()
    local function fails(text, what)
      local path = file_of(text)
      local ok, why = pcall(plan.read, path)
      assert.is_false(ok)
      assert.equal(path .. ":" .. what, why)
    end
    fails("# kvroute plan 2, 2 keys\nkey,rate,destinations\na,1,x\n",
      "3: the plan ends with 1 of 2 keys: it has been cut")
    fails("# kvroute plan 2, 0 keys\nkey,rate,destinations\n", "2: a plan has keys")
    fails("# kvroute plan 3, 1 key\nkey,rate,destinations\na,1,x\n",
      "1: version 3; 1 and 2 are read")
    fails("key,rate,destinations\n", "1: a plan has keys")
    local read, whole = plan.read(file_of("key,rate,destinations\na,1,x\n"))
    assert.same({ a = { "x" } }, read)
    assert.is_false(whole)
  end)

  it("of several models places each key where its model is served", function()
    local rates = plan.read_rates(file_of("key,model,rate\na,red,6\na,blue,5\nb,blue,4\nc,,1\n"))
    local destinations = equal(3)
    destinations[1].models = { red = true }
    destinations[2].models = { red = true, blue = true }
    destinations[3].models = { blue = true }
    local made = plan.make(rates, destinations, {})
    local text = plan.csv(made)
    assert.equal("# kvroute plan 2, 4 keys\nkey,model,rate,destinations\na,red,6,0\na,blue,5,1\n"
      .. "b,blue,4,2\nc,,1,2\n", text)
    local read = plan.read(file_of(text))
    assert.same({ ["a,red"] = { "0" }, ["a,blue"] = { "1" }, ["b,blue"] = { "2" },
      ["c,"] = { "2" } }, read)
    assert.equal(0, plan.churn(read, made).placements)
    assert.equal(0, plan.make(rates, destinations, { keep = true }, read).change.keys_moved)
    -- A plan of keys whatever their model had each of them under all models; 0 serves no blue.
    made = plan.make(rates, destinations, { keep = true }, { a = { "0" }, b = { "2" } })
    assert.same({ "0", "1", "2" }, { made.entries[1].to[1], made.entries[2].to[1],
      made.entries[3].to[1] })
    -- Two slots on what serves red, and no more, whatever the others have left.
    rates = plan.read_rates(file_of("key,model,rate\na,red,9\nb,red,8\nc,red,7\nd,blue,1\n"))
    made = plan.make(rates, destinations, { slots = 1 })
    assert.same({ a = "0", b = "1", d = "2" }, placements(made))
    assert.equal(7, made.tail_rate)
    assert.same({ 0, 0, 1 }, { made.destinations[1].load - 9 - 3.5, made.destinations[2].load - 8
      - 3.5, made.destinations[3].load })
  end)

  it("of many destinations keeps to the models of each", function()
    local rates, destinations = {}, equal(150)
    for i = 1, 150 do destinations[i].models = { ["m" .. i % 3] = true } end
    for i = 1, 300 do rates[i] = { key = "k" .. i, model = "m" .. i % 3, rate = i } end
    for _, entry in ipairs(plan.make(rates, destinations, { phi = 0.1 }).entries) do
      for _, name in ipairs(entry.to) do
        assert.equal(entry.model, "m" .. (tonumber(name) + 1) % 3)
      end
    end
  end)

  it("does not split by what was counted for too short a time", function()
    local function copies(counted)
      return plan.make(rates_of("a=20 b=5"), equal(4), { q_cap = 6, counted = counted }).copies
    end
    assert.equal(5, copies(nil)) -- 20 a second over 6 are four
    assert.equal(5, copies(20)) -- 400 requests
    assert.equal(3, copies(2)) -- 40 requests: a copy is of 32 at least
    assert.equal(2, copies(1.6)) -- 32
    assert.equal(2, copies(0.01))
  end)

  it("reads rates as CSV and as JSON lines", function()
    local wanted = { { key = "a", rate = 1.5 }, { key = "b", rate = 0 } }
    assert.same(wanted, plan.read_rates(file_of("key,rate\na,1.5\n\nb,0\n")))
    assert.same(wanted, plan.read_rates(file_of(
      '{"key":"a","rate":1.5,"note":1}\n{"key":"b","rate":0}\n', ".jsonl")))
    wanted[1].tokens, wanted[2].tokens = 800, 0.5
    assert.same(wanted, plan.read_rates(file_of("key,rate,tokens\na,1.5,800\nb,0,0.5\n")))
    assert.same(wanted, plan.read_rates(file_of(
      '{"key":"a","rate":1.5,"tokens":800}\n{"key":"b","rate":0,"tokens":0.5}\n', ".jsonl")))
  end)

  it("names file, line and field of what is wrong", function()
    local function fails(text, suffix, line, ...)
      local path = file_of(text, suffix)
      local ok, why = pcall(plan.read_rates, path)
      assert.is_false(ok)
      assert.truthy(why:find(("%s:%d: "):format(path, line), 1, true), why)
      for i = 1, select("#", ...) do
        local part = select(i, ...)
        assert.truthy(why:find(part, 1, true), why)
      end
    end
    fails("name,rate\n", nil, 1, "key,rate")
    fails("key,rate\na,1,2\n", nil, 2, "3 cells")
    fails("key,rate\na,1\nb,-1\n", nil, 3, "rate: is -1")
    fails("key,rate\na,1e308\n", nil, 2, "rate: is 1e+308; allowed: 0 to 1000000000000000")
    fails("", nil, 0, "expected the header")
    fails("key,rate\na,fast\n", nil, 2, "rate: is \"fast\"; a number")
    fails("key,rate\na,nan\n", nil, 2, "rate: ")
    fails("key,rate\na,1\nb,1\na,2\n", nil, 4, "key: a was on line 2")
    fails("key,rate\na b,1\n", nil, 2, "key: ")
    fails("key,model,rate\na,m,1\na,n,1\na,m,1\n", nil, 4, "key: a,m was on line 2")
    fails("key,model,rate\na,m n,1\n", nil, 2, "model: ")
    fails('{"key":"a","rate":1}\n{"key":"b","rate":1,"model":"m"}\n', ".jsonl", 2,
      "model: is there: all keys have one or none has")
    fails("key,rate,tokens\na,1,0\n", nil, 2, "tokens: ")
    fails("key,rate,tokens\na,1\n", nil, 2, "2 cells")
    fails("key,rate\n,1\n", nil, 2, "key: ")
    fails('{"key":"a"}\n', ".jsonl", 1, "rate: is missing")
    fails('{"key":1,"rate":1}\n', ".jsonl", 1, "key: is 1; a text")
    local path = file_of("key,rate,destinations\na,1,\n")
    local _, why = pcall(plan.read, path)
    assert.equal(path .. ":2: destinations: is empty", why)
  end)

  it("goes on from the last one, and says what it moves", function()
    local last = { a = { "0" }, b = { "1" }, c = { "1" }, gone = { "0" }, d = { "away", "1" } }
    local rates = rates_of("a=3 b=2 c=9 d=2")
    local made = plan.make(rates, equal(2), { keep = true }, last)
    assert.same({ a = "0", b = "1", c = "1", d = "1" }, placements(made))
    assert.equal(0, made.change.keys_moved)
    assert.equal("install", made.change.verdict)
    made = plan.make(rates, equal(2), { keep = true, move_budget = 0.25, life = 0.25 }, last)
    assert.same({ a = "0", b = "0", c = "1", d = "0" }, placements(made))
    local change = made.change
    assert.same({ 2, 4, 4, "not worth it" }, { change.keys_moved, change.keys_both,
      change.rate_moved, change.verdict })
    assert.equal(13 * 2 / 16, change.last_imbalance)
    -- Four requests a second above the busiest one then, against two cold copies.
    assert.same({ 1, 2 }, { change.staleness, change.warmup })
  end)

  it("admits by size, and splits what is more than a share", function()
    local rates = rates_of("a=4 b=3 c=2")
    for i, tokens in ipairs({ 1000, 100, 100 }) do rates[i].tokens = tokens end
    assert.same({ b = "0", c = "1" }, placements(plan.make(rates, equal(2), { tokens = 150 })))
    assert.same({ a = "0 1", b = "2", c = "3" },
      placements(plan.make(rates_of("a=4 b=3 c=2"), equal(4), { phi = 1.4 })))
    local ok, why = pcall(plan.make, { { key = "a", rate = 1, tokens = 2 },
      { key = "b", rate = 1 } }, equal(1), {})
    assert.is_false(ok)
    assert.truthy(why:find("1 of 2 keys have tokens", 1, true), why)
  end)

  it("takes rates from rows of a router", function()
    local row = '{"started_ms":%d,"sequence":%d,"endpoint":"chat","routing_key":"%s","blocks":0,'
      .. '"prompt_bytes":400,"estimated_tokens":%d}\n'
    local rows = file_of(row:format(2000, 3, "aa", 90) .. row:format(0, 1, "bb", 100)
      .. row:format(1000, 2, "aa", 110) .. row:format(4000, 4, "aa", 100))
    local rates = file_of("")
    local text, status = run(("--rows %s --write-rates %s"):format(rows, rates))
    assert.same({ 0, "" }, { status, text })
    assert.same({ { key = "aa", rate = 0.75, tokens = 100 },
      { key = "bb", rate = 0.25, tokens = 100 } }, plan.read_rates(rates))
    text, status = run(("--rows %s --destinations 2"):format(rows))
    assert.equal(0, status, text)
    assert.truthy(text:find("2 of 2 keys admitted", 1, true), text)
    for words, what in pairs({ ["--destinations 2"] = "either --rates or --rows",
      ["--calibrate --rows x"] = "--calibrate needs --rows, --profile and --slots",
      ["--rates x --write-rates y"] = "--write-rates needs --rows" }) do
      text, status = run(words)
      assert.is_true(status == 2 and text:find(what, 1, true) ~= nil, words .. ": " .. text)
    end
  end)

  it("is a command", function()
    local rates, out = file_of("key,rate\na,4\nb,7\nc,5\n"), file_of("")
    local text, status = run(("--rates %s --to x --to y=2 --out %s"):format(rates, out))
    assert.equal(0, status, text)
    assert.truthy(text:find("3 of 3 keys admitted, with 100.0 %", 1, true), text)
    assert.same({ b = { "y" }, c = { "x" }, a = { "y" } }, plan.read(out))
    text, status = run(("--rates %s --destinations 2 --last %s --json"):format(rates, out))
    assert.equal(0, status, text)
    local data = cjson.decode(text)
    assert.equal(1, data.churn.placements)
    assert.equal(9, data.destinations[2].load)
    text, status = run(("--rates %s --to x --to y=2 --last %s --keep --life 9"):format(rates, out))
    assert.equal(0, status, text)
    assert.truthy(text:find("0 of 3 keys move", 1, true), text)
    text, status = run("--rates " .. rates)
    assert.equal(2, status, text)
    text, status = run(("--rates %s --destinations 2 --last %s --life nan"):format(rates, out))
    assert.same({ 2, true }, { status, text:find("--life is 0 or more", 1, true) ~= nil }, text)
    for _, words in ipairs({ "--keep", "--theta 0.1", "--last x --loyalty 2", "--life 1",
      "--residency 1" }) do
      text, status = run(("--rates %s --destinations 2 %s"):format(rates, words))
      assert.is_true(status == 2 and text:find(" needs --", 1, true) ~= nil, words .. ": " .. text)
    end
    for _, words in ipairs({ "--destinations 0", "--destinations 2 --slots 1.5", "--to x --to x",
      "--to x=0", "--destinations 2000", "--destinations 2 --slots 1e18",
      "--destinations 2 --last /nowhere" }) do
      text, status = run(("--rates %s %s"):format(rates, words))
      assert.is_true(status > 0 and text:find("^kvroute plan: ") ~= nil, words .. ": " .. text)
    end
  end)
end)
