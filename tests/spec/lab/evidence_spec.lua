local evidence = require("kvroute.evidence")

local function result(more)
  local out = { requests = 1000, success = 1000, failed = 0, dropped = 0, backlog = 0.01 }
  for name, value in pairs(more or {}) do out[name] = value end
  return out
end

local function verdict(more)
  local out = { drift = 0, basis = "turns", turns_compared = 4, turns_thin = 0,
    turns_confined = 0, causes = {} }
  for name, value in pairs(more or {}) do out[name] = value end
  return out
end

local function names(flags)
  local out = {}
  for i, flag in ipairs(flags) do out[i] = flag.name end
  return out
end

-- A result with its flags, as it is stored.
local function judged(more, found, open)
  local out = result(more)
  found = found or {}
  found.flags = evidence.judge(out, found, open or false)
  out.evidence = found
  return out
end

describe("evidence", function()
  it("says nothing against a quiet cell", function()
    local r = judged(nil, { drift = verdict(), late_p99_ms = 2, ejections = 0,
      contamination = { state = "clean" } })
    assert.same({}, evidence.flags(r))
    assert.is_false(evidence.excluded(r))
    assert.equal("none found", evidence.contamination(r))
  end)

  it("excludes what drifted, with the figure", function()
    local r = judged(nil, { drift = verdict({ drift = 0.31, causes = { "cold opening" } }) })
    assert.is_true(evidence.excluded(r))
    assert.equal("cold opening (TTFT p50 +31 % in the first half)",
      evidence.text(evidence.flags(r)))
  end)

  it("says by how much the second half was slower", function()
    local r = judged(nil, { drift = verdict({ drift = -0.5, causes = { "fleet slowed" } }) })
    assert.equal("fleet slowed (TTFT p50 +100 % in the second half)",
      evidence.text(evidence.flags(r)))
    r = judged(nil, { drift = verdict({ turns_confined = 2, causes = { "partial visits" } }) })
    assert.equal("partial visits (2 turns in one half only)", evidence.text(evidence.flags(r)))
  end)

  it("keeps the goodput of a run past saturation, and not its times", function()
    local r = judged({ backlog = 0.7 },
      { drift = verdict({ drift = -0.9, causes = { "past saturation" } }) }, true)
    assert.is_false(evidence.excluded(r))
    assert.is_true(evidence.saturated(r))
  end)

  it("keeps a cell whose only flag is failures, with a warning", function()
    local r = judged({ failed = 8, dropped = 3 })
    assert.same({ "failures" }, names(evidence.flags(r)))
    assert.is_false(evidence.excluded(r))
    local worse = judged({ failed = 11 }, { ejections = 1 })
    assert.same({ "ejections", "failures" }, names(evidence.flags(worse)))
    assert.is_true(evidence.excluded(worse))
    assert.same({}, evidence.flags(judged({ failed = 10 })))
  end)

  it("excludes what the driver, the fleet or the machine spoilt", function()
    for name, found in pairs({
      ["script failed"] = { script_failures = 1 },
      late = { late_p99_ms = 11 }, ["engines late"] = { engines_late_p99_ms = 10.1 },
      busy = { driver = { "busy" } }, cancelled = { cancelled = 1 },
      interrupted = { driver = { "interrupted" } },
      rows_dropped = { driver = { "rows_dropped" } }, ejections = { ejections = 2 },
      ["out of rotation"] = { out_of_rotation = { "b:8001" } },
      unclean = { contamination = { state = "found", found = { "4711, python" } } },
    }) do
      local r = judged(nil, found)
      assert.same({ name }, names(evidence.flags(r)))
      assert.is_true(evidence.NAMES[name])
      assert.is_true(evidence.excluded(r))
    end
    -- An open loop may be later: it does not wait for answers.
    assert.same({}, evidence.flags(judged(nil, { late_p99_ms = 99 }, true)))
    assert.same({ "late" }, names(evidence.flags(judged(nil, { late_p99_ms = 101 }, true))))
  end)

  it("tells found, nothing found and nothing looked for", function()
    local function state(contamination)
      return evidence.contamination({ evidence = { contamination = contamination } })
    end
    assert.equal("found", state({ state = "found" }))
    assert.equal("none found", state({ state = "clean" }))
    assert.equal("not looked for", state({ state = "not looked for" }))
    assert.equal("not looked for", state(nil))
    -- Not to have looked is said, and excludes nothing.
    local unlooked = judged(nil, { contamination = { state = "not looked for" } })
    assert.is_false(evidence.excluded(unlooked))
  end)

  it("is ignored where an experiment means to raise it", function()
    local r = judged(nil, { ejections = 1,
      drift = verdict({ drift = 1, causes = { "cold opening" } }) })
    assert.is_true(evidence.excluded(r, { ejections = true }))
    assert.is_false(evidence.excluded(r, { ejections = true, ["cold opening"] = true }))
  end)

  it("flags a cell in which nothing was measured", function()
    assert.same({ "nothing measured" }, names(evidence.flags(judged({ requests = 0 }))))
  end)
end)
