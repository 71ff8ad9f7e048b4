local progress = require("kvroute.progress")

describe("progress", function()
  local text
  local out = {
    write = function(_, ...) for _, part in ipairs({ ... }) do text = text .. part end end,
    flush = function() end,
  }
  before_each(function() text = "" end)

  it("tells what is done, what failed and what is left", function()
    local p = progress.new(40, out, false)
    assert.equal("0 of 40 cells", p:line(p.began))
    p.done, p.failed = 10, 0
    assert.equal("10 of 40 cells, 30 s left", p:line(p.began + 10))
    p.failed = 3
    assert.equal("10 of 40 cells, 3 failed, 5 min 0 s left", p:line(p.began + 100))
    p.done = 40
    assert.equal("40 of 40 cells, 3 failed, 2 h 1 min", p:line(p.began + 7260))
  end)

  it("is silent in a file for a minute, then a line a minute", function()
    local p = progress.new(3, out, false)
    p:add(true)
    p:tick()
    assert.equal("", text)
    p.said = p.said - 61
    p:tick()
    p:tick()
    assert.equal(1, select(2, text:gsub("\n", "")))
    assert.is_truthy(text:find("^1 of 3 cells, "))
    p:finish()
    assert.equal(1, select(2, text:gsub("\n", "")))
  end)

  it("rewrites its line on a terminal, whatever its length", function()
    local p = progress.new(3, out, true)
    p.said = p.said - 1
    p:add(false)
    local long = #text
    p.failed, p.said = 0, p.said - 1
    text = ""
    p:add(true)
    assert.equal(long, #text)
    assert.equal("\r", text:sub(1, 1))
    p:finish()
    assert.equal("\n", text:sub(-1))
  end)
end)
