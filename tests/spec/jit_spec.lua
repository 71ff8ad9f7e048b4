-- Debian's busted runs PUC Lua unless .busted says otherwise; figures and FFI need LuaJIT.

describe("the specs", function()
  it("run under LuaJIT with its compiler on", function()
    assert.is_table(jit)
    assert.equal(20100, jit.version_num)
    assert.is_true((jit.status()))
  end)

  it("go without the forwarding of loads, which miscounts", function()
    for _, name in ipairs({ jit.status() }) do assert.are_not.equal("fwd", name) end
  end)
end)
