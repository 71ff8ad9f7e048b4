-- kvroute load: what it calls a failure, and of which kind.
local Driver = require("e2e.support.driver")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")
local Target = require("e2e.support.target")

describe("a load's failures", function()
  after_each(Target.finish)

  local WORD = 'data: {"choices":[{"index":0,"delta":{"content":"a"}}]}\n\n'

  local kinds = {
    status = function(exchange) exchange:reply({ status = 500, body = { error = "x" } }) end,
    lost = function(exchange) exchange:close() end,
    truncated = function(exchange)
      exchange:stream()
      exchange:event("a")
      loop.after(0.01, function() exchange:reset() end)
    end,
    no_done = function(exchange)
      exchange:stream()
      exchange:event("a")
      exchange:send("0\r\n\r\n")
    end,
    error_event = function(exchange)
      exchange:stream()
      exchange:event("a")
      exchange:chunk('data: {"error":{"message":"gone","code":500}}\n\n')
      exchange:finish()
    end,
    aborted = function(exchange)
      exchange:stream()
      exchange:event("a")
      exchange:chunk('data: {"choices":[{"index":0,"delta":{},"finish_reason":"abort"}]}\n\n')
      exchange:finish()
    end,
    malformed = function(exchange) exchange:send("this is not HTTP\r\n\r\n") end,
    empty = function(exchange)
      exchange:stream()
      exchange:finish()
    end,
    timeout = function(exchange)
      exchange:stream()
      exchange:event("a")
    end,
  }

  for kind, script in pairs(kinds) do
    it("have a kind: " .. kind, function()
      local replica = Replica.start({ script = script })
      local report, rows, status = Driver.run(replica.url,
        { "-u", "1", "-n", "1", "--timeout", "0.3" })
      assert.same({ [kind] = 1 }, report.failures)
      assert.equal(1, report.failed)
      assert.equal(0, report.completed)
      assert.equal(1, status) -- nothing succeeded
      assert.equal(kind, rows[1].error)
      assert.equal("failed", rows[1].outcome)
      assert.equal(false, rows[1].good)
      assert.same({ "failures", "nothing_succeeded" }, Target.flags(report))
      if kind == "status" then assert.same({ ["500"] = 1 }, report.statuses) end
    end)
  end

  it("have a kind: connect", function()
    local replica = Replica.start()
    replica:refuse()
    local report, _, status = Driver.run(replica.url, { "-u", "1", "-n", "1", "--model", "m" })
    assert.same({ connect = 1 }, report.failures)
    assert.equal(1, status)
  end)

  it("have a kind: an end of the connection that is no end of the answer", function()
    local replica = Replica.start({ script = function(exchange)
      exchange:send("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 500\r\n"
        .. "\r\n" .. WORD .. "data: [DONE]\n\n")
      exchange:close()
    end })
    local report = Driver.run(replica.url, { "-u", "1", "-n", "1" })
    assert.same({ truncated = 1 }, report.failures)
  end)

  it("flag a run when they are more than one in a hundred, and are in no percentile", function()
    local replica = Replica.start({ script = function(exchange)
      if #exchange.replica.exchanges % 20 == 0 then
        loop.after(0.1, function() exchange:reply({ status = 503 }) end)
      else
        Target.stream(exchange)
      end
    end })
    local report, _, status = Driver.run(replica.url, { "-u", "1", "-n", "40", "--think", "0" })
    assert.equal(38, report.completed)
    assert.equal(3, status)
    assert.same({ "failures" }, Target.flags(report))
    assert.is_true(report.p99_e2el_ms < 100)
    local good = Driver.run(replica.url, { "-u", "1", "-n", "10", "--think", "0" })
    assert.same({}, Target.flags(good))
  end)

  it("are none where a kept connection was closed as it was used again", function()
    local replica = Replica.start({ script = function(exchange)
      if exchange.nth > 1 then exchange:close() else Target.stream(exchange) end
    end })
    local report, rows = Driver.run(replica.url, { "-u", "1", "-n", "6", "--think", "0" })
    assert.equal(6, report.completed)
    assert.equal(5, report.resent)
    assert.is_true(rows[2].resent)
    assert.equal(6, report.connections)
  end)

  it("are told to nobody who must not know the key", function()
    local replica = Replica.start({ script = Target.stream })
    local run = Driver.start(replica.url,
      { "-u", "1", "-n", "2", "--key-env", "THE_KEY", "--header", "X-Team: blue" },
      { env = { THE_KEY = "sk-secret-42" } })
    run:finish()
    for _, exchange in ipairs(replica.exchanges) do
      assert.equal("Bearer sk-secret-42", exchange.request:header("authorization"))
      assert.equal("blue", exchange.request:header("x-team"))
    end
    assert.equal("Bearer sk-secret-42", replica.asked_by["/v1/models"]:header("authorization"))
    local said = run.process:stdout() .. run.process:stderr() .. Fleet.read(run.rows_path)
    assert.is_nil(said:find("secret", 1, true))
  end)
end)
