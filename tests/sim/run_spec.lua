-- kvroute run: what it does with an experiment's file, and with one that is wrong.
local lab = require("sim.laboratory")

describe("kvroute run", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  local PARTS = {
    axes = "{ { 'skew', 0, 1.4 } }",
    fleet = "lab.fleet.simulated { profile = 'rtx3090-8b-awq', replicas = 3 }",
    workload = "function(at) return lab.workload.kvroute { users = 8, skew = at.skew } end",
    policies = "{ 'round_robin', 'prefix_affinity' }",
    measure = "{ seconds = 30, warmup_s = 5 }",
    slo = "{ ttft_ms = 990, itl_ms = 24 }",
    seeds = "2",
    ignore = "{ 'cold opening', 'fleet slowed', 'partial visits' }", -- runs here are short
  }

  -- An experiment of the parts above, with others over them; false leaves one out.
  local function experiment(parts)
    local lines = {
      'local lab = require("kvroute")', "", "return lab.experiment {", "  name = 'try',",
    }
    local names, all = {}, {}
    for _, from in ipairs({ PARTS, parts or {} }) do
      for name, text in pairs(from) do
        if all[name] == nil then names[#names + 1] = name end
        all[name] = text
      end
    end
    table.sort(names)
    for _, name in ipairs(names) do
      if all[name] then lines[#lines + 1] = ("  %s = %s,"):format(name, all[name]) end
    end
    lines[#lines + 1] = "}"
    return lab.write(folder .. "/try.lua", table.concat(lines, "\n") .. "\n")
  end

  local function run(path, ...)
    return lab.run(folder, path, "--out", folder .. "/cells", ...)
  end

  -- It ends with 2, and its first line on stderr says this.
  local function refused(pattern, path, ...)
    local code, out, err = run(path, ...)
    assert.equal(2, code, err)
    assert.equal("", out)
    assert.is_truthy(err:match("^[^\n]*"):find(pattern), err)
    assert.is_nil(err:find("traceback"), err)
  end

  it("runs a file of one's own, with policies by path", function()
    lab.write(folder .. "/mine.lua", [[
      local P = { api = 1, name = "mine", params = { shift = 0 } }
      function P.pick(request) return kvr.nth_available(request.serial + P.params.shift), "mine" end
      return P
    ]])
    local path = experiment({
      policies = ("{ 'round_robin', { %q, params = { shift = 1 }, label = 'shifted' } }"):format(
        folder .. "/mine.lua"),
    })
    local code, out, err = run(path)
    assert.equal(0, code, err)
    assert.is_truthy(out:find("\nshifted ", 1, true), out)
    assert.is_truthy(out:find("skew 1.4", 1, true), out)
  end)

  it("knows a cell again by all that decides it, and by nothing else", function()
    local path = experiment()
    local _, _, err = run(path)
    assert.is_truthy(err:find("^8 cells run"), err)
    local other = folder .. "/other.lua"
    lab.write(other, lab.read(path):gsub("'try'", "'other'"))
    _, _, err = run(other)
    assert.is_truthy(err:find("^0 cells run"), err)
    for part, text in pairs({
      ignore = "{}", slo = PARTS.slo:gsub("990", "991"), measure = PARTS.measure:gsub("30", "31"),
      router = "{ ring_vnodes = 64 }", policies = "{ 'round_robin', 'p2c' }",
      workload = PARTS.workload:gsub("= 8", "= 9"),
      fleet = PARTS.fleet:gsub("= 3", "= 4"),
    }) do
      _, _, err = run(experiment({ [part] = text }))
      assert.is_truthy(err:find(part == "ignore" and "^0 cells run"
        or part == "policies" and "^4 cells run" or "^8 cells run"),
        part .. ": " .. err)
    end
  end)

  it("runs anew the cells of a policy whose text has changed", function()
    local mine = folder .. "/mine.lua"
    local text = "local P = { api = 1, name = 'mine' }\n"
      .. "function P.pick(request) return kvr.nth_available(request.serial), '%s' end\nreturn P\n"
    lab.write(mine, text:format("one"))
    local path = experiment({ policies = ("{ 'round_robin', %q }"):format(mine) })
    run(path)
    lab.write(mine, text:format("two"))
    local _, _, err = run(path)
    assert.is_truthy(err:find("^4 cells run"), err)
  end)

  it("takes settings, and lists them with the cells", function()
    local path = lab.write(folder .. "/set.lua",
      "local set = require('kvroute').settings { users = 4, skews = { 0 } }\n"
      .. lab.read(experiment({ axes = "{ { 'skew', unpack(set.skews) } }" }))
        :gsub("users = 8", "users = set.users"))
    local code, out = run(path, "--set", "skews=0,1", "--set", "users=2", "--list")
    assert.equal(0, code)
    assert.is_truthy(out:find("--set skews=0\n--set users=4\n", 1, true), out)
    assert.equal(8, select(2, out:gsub("%x+  seed", "")), out)
    local _, _, err = run(path, "--set", "skews=1")
    assert.is_truthy(err:find("^4 cells run"), err)
    refused("there is no setting user; there are skews, users", path, "--set", "user=3")
    refused('%-%-set users is a number, not "many"', path, "--set", "users=many")
    refused("there is no setting policy; there are", path, "--policy", "p2c")
  end)

  it("climbs a ladder until it is told to stop", function()
    local path = experiment({
      axes = false, policies = "{ 'round_robin', 'prefix_affinity' }", seeds = "1",
      workload = "function(at) return lab.workload.kvroute { rate = at.rate } end",
      ladder = "{ 'rate', 1, 2, 40, 60, stop = function(r) return r.ttft.p99 > 5000 end }",
      show = "{ matrix = 'goodput' }",
    })
    local code, out, err = run(path)
    assert.equal(0, code, err)
    assert.is_truthy(err:find("^6 cells run"), err)
    assert.is_truthy(out:find("rate 40", 1, true), out)
    assert.is_truthy(out:find("rate 60 +%- +%-"), out)
    local _, again = run(path)
    assert.equal(out, again)
  end)

  it("collects from every request what a file asks for", function()
    lab.write(folder .. "/count.lua", [[
      return function(cell)
        local seen, measured, tokens = 0, 0, 0
        return function(record)
          seen, tokens = seen + 1, tokens + record.output_tokens
          measured = measured + record.measured
        end, function() return { seen = seen, measured = measured, seed = cell.seed } end
      end
    ]])
    local path = experiment({
      collect = ("{ %q }"):format(folder .. "/count.lua"),
      report = [[function(results)
        local out = {}
        for _, pool in ipairs(results.pools) do
          for _, r in ipairs(pool.results) do
            local c = r.collected.count
            out[#out + 1] = ("%d %s %s"):format(c.seed, c.measured == r.requests, c.seen == r.ended)
          end
        end
        return table.concat(out, "\n") .. "\n"
      end]],
    })
    local code, out, err = run(path)
    assert.equal(0, code, err)
    assert.equal(4, select(2, out:gsub("1 true true\n", "")), out)
    assert.equal(4, select(2, out:gsub("2 true true\n", "")), out)
  end)

  it("ends with 1 and the reason when cells fail, and runs the others", function()
    local path = experiment({
      fleet = "function(at) return lab.fleet.simulated { profile = 'rtx3090-8b-awq', replicas = 3, "
        .. "slowdowns = at.skew > 0 and { 1, 2 } or nil } end",
    })
    local code, out, err = run(path)
    assert.equal(1, code)
    assert.is_truthy(err:find("failed: round_robin, skew 1.4, seed 1", 1, true), err)
    assert.is_truthy(err:find("fleet.slowdowns has 2 values for 3 replicas", 1, true), err)
    assert.is_truthy(err:find("4 cells run, 4 failed", 1, true), err)
    assert.is_truthy(out:find("round_robin (not run)", 1, true), out)
  end)

  it("fails the cells of a policy that never ends, and no others", function()
    lab.write(folder .. "/mine.lua", "local P = { api = 1, name = 'mine' }\nlocal n = 0\n"
      .. "function P.pick()\n  n = n + 1\n  while n > 2000 do end\n"
      .. "  return kvr.nth_available(n), 'mine'\nend\nreturn P\n")
    local path = experiment({
      policies = ("{ 'round_robin', %q }"):format(folder .. "/mine.lua"), limit_s = "3",
      axes = "{ { 'skew', 1 } }", seeds = "1",
      measure = "{ seconds = 3000, warmup_s = 5 }",
    })
    local code, _, err = run(path)
    assert.equal(1, code, err)
    assert.is_truthy(err:find("mine, skew 1, seed 1\n  it took longer than 3 s", 1, true), err)
    assert.is_truthy(err:find("1 cells run, 1 failed", 1, true), err)
  end)

  it("does not show as a policy's what C decided, since its script failed", function()
    for name, bad in pairs({ raises = "error({})", nonsense = "return 99, 'mine'" }) do
      lab.write(folder .. "/mine.lua", ("local P = { api = 1, name = 'mine' }\nlocal n = 0\n"
        .. "function P.pick()\n  n = n + 1\n  if n > 50 then %s end\n"
        .. "  return kvr.nth_available(n), 'mine'\nend\nreturn P\n"):format(bad))
      local code, out, err = run(experiment({
        policies = ("{ 'round_robin', %q }"):format(folder .. "/mine.lua"), seeds = "1",
        axes = "{ { 'skew', 1 } }",
      }))
      assert.equal(0, code, err)
      assert.is_truthy(out:find("mine %(0 of 1%)"), name .. ": " .. out)
      assert.is_truthy(out:find("script failed %(10 times; C decided %d+ of %d+ requests%)"), out)
    end
  end)

  it("names what a cell cannot be run with, and no line of its own", function()
    for part, cases in pairs({
      fleet = {
        ["replicas is a whole number from 0 to 4294967295, not 4294967298"] =
          "lab.fleet.simulated { profile = 'rtx3090-8b-awq', replicas = 2 ^ 32 + 2 }",
        ["profile_set: max_model_len is a number, not x"] = "lab.fleet.simulated { "
          .. "profile = 'rtx3090-8b-awq', profile_set = { max_model_len = 'x' } }",
        ["slowdowns[2] is a number, not x"] = "lab.fleet.simulated { "
          .. "profile = 'rtx3090-8b-awq', replicas = 2, slowdowns = { 1, 'x' } }",
      },
      workload = {
        ["users is a whole number from 0 to 4294967295, not 4294967304"] =
          "lab.workload.kvroute { users = 2 ^ 32 + 8 }",
        ["weights of all keys make 0"] = "lab.workload.keys { users = 2, weights = { 0, 0 } }",
      },
      router = {
        ["index_nodes is a whole number from 0 to 4294967295, not 4294967296"] =
          "{ index_nodes = 2 ^ 32 }",
      },
    }) do
      for reason, text in pairs(cases) do
        local code, _, err = run(experiment({
          [part] = text, seeds = "1", policies = "{ 'p2c' }", axes = "{ { 'skew', 0 } }",
        }))
        assert.equal(1, code, err)
        assert.is_truthy(err:find(reason, 1, true), err)
        assert.is_nil(err:find("traceback"), err)
      end
    end
  end)

  it("runs with a profile of one's own, and names what is wrong with one", function()
    local path = experiment({
      fleet = ("lab.fleet.simulated { profile = %q, replicas = 2 }"):format(folder .. "/mine.lua"),
      seeds = "1", policies = "{ 'p2c' }", axes = "{ { 'skew', 0 } }",
    })
    local simple = lab.read("core/engine/profiles/simple.lua")
    lab.write(folder .. "/mine.lua", simple .. "name = 'mine'\nblocks = 4000\n")
    local code, _, err = run(path)
    assert.equal(0, code, err)
    for text, reason in pairs({
      ["name = 5"] = "mine.lua:%d+: name: must be of letters",
      [("name = '%s'"):format(("x"):rep(500))] = "mine.lua:%d+: name: must be of at most 64 char",
      ["blocks = 4000.5"] = "mine.lua:%d+: blocks: must be an integer",
      ["block = 4000"] = "mine.lua:%d+: block: no such setting",
    }) do
      lab.write(folder .. "/mine.lua", simple .. text .. "\n")
      code, _, err = run(path)
      assert.equal(2, code, err)
      assert.is_truthy(err:find(reason), err)
      assert.is_nil(err:find("traceback"), err)
    end
  end)

  it("runs again what stands in the store and is no result", function()
    local path = experiment({ axes = "{ { 'skew', 0 } }", seeds = "1" })
    local _, out = run(path)
    for name in pairs(lab.files(folder .. "/cells")) do
      local key = name:match("(%x+)%.json$")
      if key then lab.write(folder .. "/cells/" .. name, ('{"key":"%s"}'):format(key)) end
    end
    local code, again, err = run(path)
    assert.equal(0, code, err)
    assert.is_truthy(err:find("^2 cells run"), err)
    assert.equal(out, again)
  end)

  it("ends with 1 when its result cannot be shown", function()
    local path = experiment({ axes = "{ { 'skew', 0 } }", seeds = "1" })
    local status = os.execute(("'%s' run '%s' --out '%s/cells' >/dev/full 2>'%s/stderr'"):format(
      lab.binary, path, folder, folder))
    assert.equal(1, math.floor(status / 256))
    local err = lab.read(folder .. "/stderr")
    assert.is_truthy(err:find("stdout cannot be written", 1, true), err)
  end)

  it("ends with 1 when it can write nowhere, and says where", function()
    local path = experiment()
    lab.write(folder .. "/file", "")
    local code, _, err = lab.run(folder, path, "--out", folder .. "/file/cells")
    assert.equal(1, code, err)
    assert.is_truthy(err:find("cannot make the folder .*/file/cells", 1), err)
    code, _, err = run(path, "--results", folder .. "/file")
    assert.equal(1, code, err)
    assert.is_truthy(err:find("cannot write .*/file", 1), err)
  end)

  it("tells the line of a report that fails", function()
    local path = experiment({
      seeds = "1", report = "function(results) return results.pools[1]:shown('goodpud') end",
    })
    local code, _, err = run(path)
    assert.equal(1, code)
    assert.is_truthy(err:find("try.lua:%d+: there is no metric goodpud"), err)
  end)

  it("shows no table of cells that all failed", function()
    local code, out, err = run(experiment({ workload = "lab.workload.kvroute { turns = 0 }" }))
    assert.equal(1, code)
    assert.equal("", out)
    assert.is_truthy(err:find("turns is 0, must be between", 1, true), err)
  end)

  it("refuses an index too small for its own tables, and blocks too small to hash", function()
    for router, why in pairs({
      ["{ index_memory_mb = 1 }"] = "index_memory_mb is 1, must be at least 2",
      ["{ index_block_bytes = 8 }"] = "index_block_bytes is 8, must be at least 16",
    }) do
      local code, _, err = run(experiment({ seeds = "1", router = router }))
      assert.equal(1, code, err)
      assert.is_truthy(err:find(why, 1, true), err)
    end
  end)

  it("tells what a figure lacks", function()
    for figure, why in pairs({
      ["{ kind = 'bars', title = 'x' }"] = "figure f has no y; lab.figure.groups makes",
      ["{ kind = 'lines', title = 'x' }"] = "figure f has no panels or series; lab.figure.over",
      ["{ kind = 'pie' }"] = "figure f: its kind is lines, bars, rows or heat",
    }) do
      local code, _, err = run(experiment({
        seeds = "1", figures = ("function() return { f = %s } end"):format(figure),
      }), "--results", folder .. "/out")
      assert.equal(1, code, err)
      assert.is_truthy(err:find(why, 1, true), err)
    end
  end)

  describe("refuses", function()
    it("what cannot be read", function()
      refused("cannot read .*/none.lua", folder .. "/none.lua")
      local code, _, err = lab.run(folder)
      assert.equal(2, code)
      assert.is_truthy(err:find("one experiment, such as experiments/hello.lua", 1, true), err)
    end)

    it("bad Lua, with file and line", function()
      refused("bad.lua:2: ", lab.write(folder .. "/bad.lua", "local x = 1\nlocal = 2\n"))
      refused("bad.lua:3: .*nil value",
        lab.write(folder .. "/bad.lua", "local a\n\nlocal b = a.b\n"))
      refused("bad.lua:1: module 'kvroot' not found",
        (lab.write(folder .. "/bad.lua", "local lab = require('kvroot')\n")))
    end)

    it("a file that gives no experiment", function()
      refused("none.lua returns nothing, not an experiment",
        lab.write(folder .. "/none.lua", "local x = 1\n"))
      refused("none.lua returns a table, not an experiment",
        lab.write(folder .. "/none.lua", "return {}\n"))
    end)

    it("what is missing or misspelt, with file and line", function()
      refused("try.lua:%d+: experiment needs fleet", experiment({ fleet = false }))
      refused("try.lua:%d+: experiment has no option polices; it has .*policies",
        experiment({ polices = "{}" }))
      refused("try.lua:%d+: experiment: seeds is a number, not a string",
        experiment({ seeds = "'many'" }))
      refused("try.lua:6: fleet.simulated has no option profil; it has .*profile",
        experiment({ fleet = "lab.fleet.simulated { profil = 'x' }" }))
      refused("try.lua:%d+: workload.kvroute has no option user; it has .*users", experiment({
        workload = "lab.workload.kvroute { user = 3 }",
      }))
      refused("try.lua:%d+: workload.kvroute: one of users, rate", experiment({
        workload = "lab.workload.kvroute { users = 3, rate = 2 }",
      }))
      refused("there is no metric goodpud; there are goodput,",
        experiment({ show = "{ metrics = { 'goodpud' } }" }))
      refused("fleet is made by lab.fleet", experiment({ fleet = "{ replicas = 3 }" }))
      refused("try.lua:%d+: router has no option index_ttl; it has .*index_ttl_ms",
        experiment({ router = "{ index_ttl = 3 }" }))
      refused("try.lua:6: fleet: there is no profile h100; ",
        experiment({ fleet = "lab.fleet.simulated { profile = 'h100' }" }))
    end)

    it("an axis that there is not, which would be nil", function()
      local workload = "function(at) return lab.workload.kvroute { skew = at.skw } end"
      refused("try.lua:%d+: there is no axis skw; there are skew$",
        experiment({ workload = workload }))
      refused("try.lua:%d+: there is no axis skw; this experiment has none$",
        experiment({ workload = workload, axes = "{}" }))
    end)

    it("numbers that mean nothing", function()
      for given, why in pairs({
        ["users = -3"] = "users is a whole number from 0, not %-3",
        ["users = 2.5"] = "users is a whole number from 0, not 2.5",
      }) do
        refused("try.lua:%d+: workload.kvroute: " .. why,
          experiment({ workload = ("lab.workload.kvroute { %s }"):format(given) }))
      end
      refused("fleet.simulated: replicas is a whole number from 0, not 2.5", experiment({
        fleet = "lab.fleet.simulated { profile = 'rtx3090-8b-awq', replicas = 2.5 }",
      }))
      refused("router: index_nodes is a whole number from 0, not %-1",
        experiment({ router = "{ index_nodes = -1 }" }))
      refused("measure: seconds is %-1", experiment({ measure = "{ seconds = -1 }" }))
      refused("a warm%-up of 30 s leaves nothing of 30 s",
        experiment({ measure = "{ seconds = 30, warmup_s = 30 }" }))
    end)

    it("places that are not told apart, and seeds that are none", function()
      for text, reason in pairs({
        ["{ { 'skew', 0 }, { 'skew', 1 } }"] = "two axes are called skew",
        ["{ { 'skew', 0, 1, 0 } }"] = "skew is 0 twice",
        ["{ { 'skew', 0, nil, 1 } }"] = "a value of skew is nil",
        ["{ { 'skew', 0 / 0 } }"] = "a value of skew is NaN",
        ["{ { 'skew', { 0 } } }"] = "a value of skew is table",
      }) do
        refused("try.lua:%d+: experiment: axes: " .. reason, experiment({ axes = text }))
      end
      for _, seeds in ipairs({ "0", "-1", "1.5", "0 / 0" }) do
        refused("experiment: seeds is a whole number from 1", experiment({ seeds = seeds }))
      end
    end)

    it("what is no data, and what ignores nothing", function()
      refused("try.lua:%d+: slo.ttft_ms is inf, not a number",
        experiment({ slo = "{ ttft_ms = math.huge }" }))
      refused("workload.skew is nan", experiment({
        workload = "function() return lab.workload.kvroute { skew = 0 / 0 } end",
      }))
      refused("fleet.profile_set.blocks is a function, not data", experiment({
        fleet = "lab.fleet.simulated { profile = 'simple', profile_set = { blocks = print } }",
      }))
      refused("ignore: there is no flag cold start; there are busy,",
        experiment({ ignore = "{ 'cold start' }" }))
      refused("ladder: stop is a function", experiment({ ladder = "{ 'users', 1, stop = 3 }" }))
    end)

    it("no folder", function()
      refused("%-%-results is a folder", experiment(), "--results", "")
      local code, _, err = lab.run(folder, experiment(), "--out", "")
      assert.equal(2, code, err)
    end)

    it("policies that are not there, or not right", function()
      refused("a policy or spill rule is { NAME",
        experiment({ policies = "{ { 'prefix_affinity', spill = {} } }" }))
      refused("there is no script nobody", experiment({ policies = "{ 'nobody' }" }))
      refused("there is no script sometimes",
        experiment({ policies = "{ { 'prefix_affinity', spill = 'sometimes' } }" }))
      refused("weigth", experiment({ policies = "{ { 'prefix_hash', params = { weigth = 3 } } }" }))
      refused("two policies are called p2c; give one a label",
        experiment({ policies = "{ 'p2c', { 'p2c' } }" }))
      lab.write(folder .. "/mine.lua", "local P = { api = 1, name = 'mine' }\nreturn P\n")
      refused("mine.*pick", experiment({ policies = ("{ %q }"):format(folder .. "/mine.lua") }))
    end)

    it("shards that are none", function()
      for _, shard in ipairs({ "0/3", "4/3", "1", "a/b", "1/0" }) do
        refused('%-%-shard is I/N with I from 1 to N, not "' .. shard, experiment(),
          "--shard", shard)
      end
    end)
  end)
end)
