-- Addresses of cells. The library of the lab is needed for its hashes alone.
local cell = require("kvroute.cell")
local fleet = require("kvroute.fleet")
local schema = require("kvroute.schema")
local workload = require("kvroute.workload")

describe("cell", function()
  local function parts()
    return {
      fleet = fleet.simulated({ profile = "simple", replicas = 3 }),
      workload = workload.kvroute({ users = 4, skew = 1 }),
      policy = {
        label = "mine", texts = { h1 = "text" }, script = { name = "mine", hash = "h1",
          params = { a = 1, b = "x" } },
      },
      router = { index_nodes = 10 }, slo = { ttft_ms = 100 }, measure = { seconds = 30 },
      collect = {}, seed = 1, at = { skew = 1 },
    }
  end

  local function key(change)
    local p = parts()
    if change then change(p) end
    return cell.new(p).key
  end

  it("has an address of 32 digits that only its parts decide", function()
    assert.is_truthy(key():find("^%x+$"))
    assert.equal(32, #key())
    assert.equal(key(), key())
  end)

  it("has another address for anything that affects it", function()
    local seen = { [key()] = "itself" }
    local function other(name, change)
      local got = key(change)
      assert.is_nil(seen[got], ("%s has the address of %s"):format(name, tostring(seen[got])))
      seen[got] = name
    end
    other("replicas", function(p) p.fleet.replicas = 4 end)
    other("profile", function(p) p.fleet.profile = "h100-8b-bf16" end)
    other("workload", function(p) p.workload.skew = 1.4 end)
    other("policy text", function(p) p.policy.script.hash = "h2" end)
    other("policy name", function(p) p.policy.script.name = "yours" end)
    other("params", function(p) p.policy.script.params.a = 2 end)
    other("spill", function(p) p.policy.spill = { name = "off", hash = "h3", params = {} } end)
    other("spill params", function(p)
      p.policy.spill = { name = "off", hash = "h3", params = { factor = 2 } }
    end)
    other("router", function(p) p.router.index_nodes = 11 end)
    other("slo", function(p) p.slo.ttft_ms = 101 end)
    other("measure", function(p) p.measure.seconds = 31 end)
    other("seed", function(p) p.seed = 2 end)
    other("collector", function(p) p.collect = { { name = "c", hash = "h4", text = "t" } } end)
    local build = cell.build
    cell.build = { simulated = "another", live = "none", abi = 1 }
    other("build", nil)
    cell.build = { simulated = "none", live = "another", abi = 1 }
    assert.equal("itself", seen[key()]) -- of the live program only
    cell.build = { simulated = "none", live = "none", abi = 2 }
    other("ABI", nil)
    cell.build = build
  end)

  it("does not depend on what it is called", function()
    assert.equal(key(), key(function(p) p.policy.label = "another" end))
    assert.equal(key(), key(function(p) p.at = {} end))
  end)

  it("takes the whole program for live cells", function()
    local live = function(p) p.fleet = fleet.emulated({ profile = "simple" }) end
    local before, build = key(live), cell.build
    cell.build = { simulated = "none", live = "another", abi = 1 }
    assert.are_not.equal(before, key(live))
    cell.build = build
  end)

  it("carries the texts of its scripts, but not in its address", function()
    local one = cell.new(parts())
    assert.equal("text", one.texts.h1)
    local p = parts()
    p.policy.texts = { h1 = "text", h2 = "unused" }
    assert.equal(one.key, cell.new(p).key)
  end)

  it("copies where it stands", function()
    local p = parts()
    local one = cell.new(p)
    p.at.skew = 9
    assert.equal(1, one.at.skew)
    assert.equal("skew 1", cell.place(one.at, { "skew" }))
    assert.equal("", cell.place(one.at, {}))
    assert.same({ skew = 1 }, schema.copy(one.at))
  end)
end)
