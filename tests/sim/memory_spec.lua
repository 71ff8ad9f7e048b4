-- Requests stay in C: however many there are, the Lua heap of the process that runs a cell, and
-- that looks at each of them, does not grow. KVR_FULL=1 takes ten million.
local cjson = require("cjson")
local lab = require("sim.laboratory")

local REQUESTS = os.getenv("KVR_FULL") and 10e6 or 4e5
local SAMPLES = 20

describe("the laboratory's memory", function()
  local folder
  before_each(function() folder = lab.new_folder() end)
  after_each(function() lab.remove_folder(folder) end)

  it("does not grow with the number of requests", function()
    lab.write(folder .. "/heap.lua", ([[
      return function()
        local seen, tokens, samples = 0, 0, {}
        return function(record)
          seen, tokens = seen + 1, tokens + record.output_tokens
          if seen %% %d == 0 then
            collectgarbage()
            samples[#samples + 1] = collectgarbage("count")
          end
        end, function() return { seen = seen, tokens = tokens, kb = samples } end
      end
    ]]):format(REQUESTS / SAMPLES))
    lab.write(folder .. "/many.lua", ([[
      local lab = require("kvroute")
      return lab.experiment {
        name = "many",
        fleet = lab.fleet.simulated { profile = "simple", replicas = 4 },
        workload = lab.workload.keys {
          users = 64, keys = 1000, variants = 1, template_tokens = 16, context_tokens = 0,
          variant_tokens = 16, unique_tokens = 16, output_tokens = 1,
        },
        policies = { "least_outstanding" },
        measure = { requests = %d },
        slo = { ttft_ms = 1000 },
        seeds = 1,
        collect = { %q },
        ignore = { "cold opening", "fleet slowed", "partial visits" },
      }
    ]]):format(REQUESTS, folder .. "/heap.lua"))
    local code, _, err = lab.run(folder, folder .. "/many.lua", "--out", folder .. "/cells",
      "--results", folder)
    assert.equal(0, code, err)
    local data = cjson.decode(lab.read(folder .. "/many.json"))
    local found = data.pools[1].repetitions[1].result
    local heap = found.collected.heap
    assert.equal(REQUESTS, found.requests)
    assert.equal(REQUESTS, heap.seen)
    assert.equal(REQUESTS, heap.tokens)
    assert.equal(SAMPLES, #heap.kb)
    if os.getenv("KVR_FULL") then
      print(("Lua heap, KiB: %.0f after %g requests, %.0f after %g"):format(heap.kb[1],
        REQUESTS / SAMPLES, heap.kb[SAMPLES], REQUESTS))
    end
    -- From the half on; before it what is bounded fills up.
    for i = SAMPLES / 2, SAMPLES do
      assert.is_true(heap.kb[i] <= heap.kb[SAMPLES / 2] + 64, cjson.encode(heap.kb))
    end
  end)
end)
