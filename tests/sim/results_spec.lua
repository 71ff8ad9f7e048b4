-- The committed results of the study: each experiment has them, and a rerun gives the same bytes.
local lfs = require("lfs")
local lab = require("sim.laboratory")

local RESULTS = "experiments/results"

-- Experiments that are of the study, by what they require.
local function experiments()
  local out = {}
  for file in lfs.dir("experiments") do
    local name = file:match("^(.*)%.lua$")
    if name and lab.read("experiments/" .. file):find('require("kvroute.study")', 1, true) then
      out[#out + 1] = name
    end
  end
  table.sort(out)
  return out
end

describe("the experiments of the study", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("have a table and figures each, committed", function()
    local names = experiments()
    assert.is_true(#names >= 18)
    for _, name in ipairs(names) do
      local base = ("%s/%s/%s"):format(RESULTS, name, name)
      assert.equal("file", lfs.attributes(base .. ".txt", "mode"), base)
      local shown = lab.read(base .. ".figures.json")
      for figure in shown:gmatch('\n  "([%w_]+)": {') do
        for _, kind in ipairs({ "svg", "png" }) do
          local path = ("%s-%s.%s"):format(base, figure, kind)
          assert.equal("file", lfs.attributes(path, "mode"), path)
        end
      end
    end
  end)

  it("can all be listed, with their headers", function()
    for _, name in ipairs(experiments()) do
      local file = "experiments/" .. name .. ".lua"
      local code, out, err = lab.run(folder, file, "--list")
      assert.equal(0, code, err)
      assert.is_truthy(out:find("seed 1", 1, true))
      local text = lab.read(file)
      for _, head in ipairs({ "Question", "Method", "Seed", "Run", "Takes" }) do
        assert.is_truthy(text:find("\n?%-%- " .. head .. " "), name .. ": " .. head)
      end
    end
  end)

  it("have results that a rerun gives, to the byte", function()
    local code, _, err = lab.run(folder, "experiments/frozen.lua", "--out", folder .. "/cells",
      "--results", folder .. "/results")
    assert.equal(0, code, err)
    for _, kind in ipairs({ ".txt", ".figures.json" }) do
      assert.equal(lab.read(RESULTS .. "/frozen/frozen" .. kind),
        lab.read(folder .. "/results/frozen" .. kind))
    end
  end)

  it("give the same from one process and from three, pictures too", function()
    for jobs = 1, 3, 2 do
      local code, _, err = lab.run(folder, "experiments/hash_weight.lua", "--seeds", "1",
        "-j", tostring(jobs), "--out", folder .. "/cells" .. jobs,
        "--results", folder .. "/results" .. jobs)
      assert.equal(0, code, err)
    end
    local one = lab.files(folder .. "/results1")
    assert.is_truthy(one["hash_weight-weight.png"] and one["hash_weight-weight.svg"])
    assert.same(one, lab.files(folder .. "/results3"))
  end)
end)
