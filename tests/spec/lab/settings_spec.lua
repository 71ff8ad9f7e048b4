local settings = require("kvroute.settings")

describe("settings", function()
  before_each(settings.reset)
  after_each(settings.reset)

  local function refused(text, call, ...)
    local ok, why = pcall(call, ...)
    assert.is_false(ok)
    assert.equal(text, why)
  end

  it("are defaults until given, and take the type of these", function()
    settings.give("users=64")
    settings.give("skews=0,1.4")
    settings.give("policy=my dir/a=b.lua")
    settings.give("spill=false")
    local set = settings.declare({
      users = 32, skews = { 1 }, policy = "p2c", spill = true, think_ms = 1,
    })
    assert.same({
      users = 64, skews = { 0, 1.4 }, policy = "my dir/a=b.lua", spill = false, think_ms = 1,
    }, set)
    settings.check()
  end)

  it("are refused with their name and value", function()
    refused('--set is NAME=VALUE, not "users"', settings.give, "users")
    refused('--set is NAME=VALUE, not "=3"', settings.give, "=3")
    settings.give("users=many")
    refused('--set users is a number, not "many"', settings.declare, { users = 32 })
    refused("--set users is given twice", settings.give, "users=3")
    settings.give("spill=yes")
    refused('--set spill is true or false, not "yes"', settings.declare, { spill = true })
    settings.give("skews=0,x")
    refused('--set skews is numbers with commas between, not "0,x"', settings.declare,
      { skews = { 1 } })
  end)

  it("must have been declared", function()
    settings.give("user=3")
    refused("there is no setting user; this experiment has none", settings.check)
    settings.declare({ users = 32, skew = 0 })
    refused("there is no setting user; there are skew, users", settings.check)
  end)

  it("are listed by name", function()
    settings.declare({ users = 32, skew = 0 })
    assert.same({ { name = "skew", default = 0 }, { name = "users", default = 32 } },
      settings.list())
  end)
end)
