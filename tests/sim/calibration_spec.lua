-- The emulated card against what was published of the real one: alone, with a prompt unseen and
-- sent again, and with 32 users on one replica.
local study = require("sim.study")

-- Independent prompts of 2,048 bytes, 64 tokens out, as the card was measured.
local function fixed(users, sessions)
  return function(options)
    local w = options.workload
    options.replicas = 1
    w.users, w.sessions, w.turns = users, sessions, 1
    w.user_bytes, w.system_share, w.branch_share, w.early_share = 2048, 0, 0, 0
    options.warmup_ms, options.duration_ms = 5000, 200000
  end
end

describe("the emulated RTX 3090", function()
  it("answers an unseen prompt as fast as the real one", function()
    local r = study.run({ policy = "round_robin" }, fixed(1, 1000000))
    study.within(r.ttft.p50, 313, 345, "first token")
    study.within(r.itl.p50, 7.4, 8.2, "gap between tokens")
  end)

  it("answers a prompt sent again as fast", function()
    local r = study.run({ policy = "round_robin" }, fixed(1, 1))
    study.within(r.ttft.p50, 40, 52, "first token")
  end)

  it("is as slow under 32 users", function()
    local r = study.run({ policy = "round_robin" }, fixed(32, 1000000))
    study.within(r.itl.p50, 45, 60, "gap between tokens")
    study.within(r.throughput_per_s, 2.4, 2.9, "answers a second")
  end)
end)
