-- experiments/hello.lua as a stranger runs it: the first thing that has to work.
local cjson = require("cjson")
local lab = require("sim.laboratory")

describe("experiments/hello.lua", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  local function hello(cells, ...)
    return lab.run(folder, "experiments/hello.lua", "--out", folder .. "/" .. cells, ...)
  end

  it("prints a table that orders the policies as on the measured fleet", function()
    local code, out, err = hello("cells", "--results", folder .. "/results")
    assert.equal(0, code, err)
    assert.is_truthy(err:find("30 cells run, 0 failed", 1, true), err)
    for line in out:gmatch("[^\n]+") do assert.is_true(#line <= 100, line) end
    local goodput = {}
    for line in out:match("skew 0\n(.-)skew 1.4\n"):gmatch("[^\n]+") do
      local name, value = line:match("^(%S+) +([%d.]+) %(")
      if name then goodput[name] = tonumber(value) end
    end
    assert.is_true(goodput.round_robin < goodput.least_outstanding)
    assert.is_true(goodput.least_outstanding < goodput.session_affinity)
    assert.is_true(goodput.session_affinity < goodput.prefix_affinity)
    assert.equal(out, lab.read(folder .. "/results/hello.txt"))
  end)

  it("writes what is in its table as JSON and CSV, with where it comes from", function()
    local code, _, err = hello("cells", "--seeds", "2", "--results", folder .. "/results")
    assert.equal(0, code, err)
    local data = cjson.decode(lab.read(folder .. "/results/hello.json"))
    assert.equal("hello", data.experiment)
    assert.equal(10, #data.pools)
    for _, pool in ipairs(data.pools) do
      assert.equal(2, #pool.repetitions)
      for seed, one in ipairs(pool.repetitions) do
        assert.equal(seed, one.seed)
        assert.equal("rtx3090-8b-awq", one.profile)
        assert.equal(16, #one.policy.hash)
        assert.equal(32, #one.key)
        assert.equal(0, one.result.script_errors)
        assert.equal(0, one.result.fallbacks)
      end
    end
    local csv = lab.read(folder .. "/results/hello.csv")
    local head = "policy,skew,seed,regime,profile,policy_hash,spill,spill_hash,build,key,goodput,"
    assert.equal(head, csv:sub(1, #head))
    assert.equal(1 + 20, select(2, csv:gsub("\n", "")))
  end)

  it("gives equal bytes for an equal seed, by one process or by three", function()
    local _, one = hello("1", "--seeds", "1", "-j", "1", "--results", folder .. "/results-1")
    local _, three = hello("3", "--seeds", "1", "-j", "3", "--results", folder .. "/results-3")
    assert.equal(one, three)
    assert.same(lab.files(folder .. "/1"), lab.files(folder .. "/3"))
    assert.same(lab.files(folder .. "/results-1"), lab.files(folder .. "/results-3"))
    local _, other = hello("other", "--seeds", "1", "--seed", "9")
    assert.are_not.equal(one, other)
  end)

  it("shows the same from the store as from the run", function()
    local _, first = hello("cells", "--seeds", "1")
    local code, again, err = hello("cells", "--seeds", "1")
    assert.equal(0, code)
    assert.equal(first, again)
    assert.is_truthy(err:find("0 cells run, 0 failed, 10 had been run before;", 1, true), err)
  end)

  it("goes on where it was killed, to the same end", function()
    local _, whole = hello("whole")
    local kept, tries = 0, 0
    os.execute("mkdir '" .. folder .. "/cells'")
    while kept < 3 and tries < 30 do
      os.execute(("TMPDIR='%s' timeout -s KILL 0.4 '%s' run experiments/hello.lua -j 1 --out '%s' "
        .. ">'%s' 2>&1"):format(folder, lab.binary, folder .. "/cells", folder .. "/killed"))
      kept, tries = 0, tries + 1
      for name in pairs(lab.files(folder .. "/cells")) do
        if name:find("^%x%x/.*%.json$") then kept = kept + 1 end
      end
    end
    assert.is_true(kept >= 3 and kept < 30, kept)
    local code, again, err = hello("cells")
    assert.equal(0, code, err)
    assert.is_truthy(err:find((30 - kept) .. " cells run, 0 failed", 1, true), err)
    assert.equal(whole, again)
  end)

  it("is the same whole from shards", function()
    local _, whole = hello("whole", "--seeds", "1")
    for i = 1, 3 do
      local code, out, err = hello("parts", "--seeds", "1", "--shard", i .. "/3")
      assert.equal(0, code, err)
      if i < 3 then assert.equal("", out) end
    end
    local _, union, err = hello("parts", "--seeds", "1")
    assert.equal(whole, union)
    assert.is_truthy(err:find("0 cells run", 1, true), err)
    assert.same(lab.files(folder .. "/whole"), lab.files(folder .. "/parts"))
  end)

  it("keeps rows when they are wanted", function()
    local code, _, err = hello("cells", "--seeds", "1", "--set", "skews=0", "--rows")
    assert.equal(0, code, err)
    local cells, rows = 0, 0
    for name, text in pairs(lab.files(folder .. "/cells")) do
      if name:find("rows.jsonl$") then
        cells = cells + 1
        for line in text:gmatch("[^\n]+") do
          if rows % 1000 == 0 then
            local row = cjson.decode(line)
            assert.is_string(row.policy.hash)
            assert.equal("success", row.outcome)
          end
          rows = rows + 1
        end
      end
    end
    assert.equal(5, cells)
    assert.is_true(rows > 5000)
  end)
end)
