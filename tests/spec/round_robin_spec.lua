local fleet = require("spec.support.fleet")

describe("round_robin", function()
  local f = assert(fleet.policy("round_robin"))

  local function at(serial, rows)
    f:see({ serial = serial }, rows)
    return { f:pick() }
  end

  it("takes the replicas in turn, whatever their load", function()
    local rows = { { in_flight = 9 }, {}, { match_blocks = 4 } }
    assert.same({ 0, "round_robin", false }, at(0, rows))
    assert.same({ 1, "round_robin", false }, at(1, rows))
    assert.same({ 2, "round_robin", false }, at(2, rows))
    assert.same({ 0, "round_robin", false }, at(3, rows))
  end)

  it("takes turns among the available only", function()
    local rows = { { available = false }, {}, { available = false }, {} }
    assert.equal(1, at(0, rows)[1])
    assert.equal(3, at(1, rows)[1])
    assert.equal(1, at(2, rows)[1])
  end)

  it("has no opinion when nothing is available", function()
    assert.same({}, at(0, { { available = false } }))
    assert.same({}, at(0, {}))
  end)

  it("is even at the end of the serial's range", function()
    assert.equal(4294967295 % 3, at(4294967295, { {}, {}, {} })[1])
  end)
end)
