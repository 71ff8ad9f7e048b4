-- kvroute's commands, run beside a fleet as an operator would: `ctl` finds its admin interface.
local assert = require("luassert")
local Fleet = require("e2e.support.fleet")
local process = require("e2e.support.process")

local M = { DONE = 0, REFUSED = 1, USAGE = 2, UNREACHABLE = 3 } -- exit codes

local runs = 0

-- Starts kvroute with these arguments. Optional: `env`, further variables, and the `directory` it
-- stands in.
function M.start(fleet, arguments, env, directory)
  runs = runs + 1
  local all = { KVROUTE_ADMIN = fleet.admin_address, KVROUTE_TOKEN = "" }
  for name, value in pairs(env or {}) do all[name] = value end
  local path = ("%s/command.%d"):format(fleet.folder, runs)
  return process.start({ Fleet.binary, unpack(arguments) },
    { out = path .. ".out", err = path .. ".err", env = all, directory = directory })
end

-- Runs it to its end: the exit code, stdout and stderr.
function M.finish(run)
  local how, code = run:wait(10)
  assert.equal("exited", how)
  return code, run:stdout(), run:stderr()
end

function M.run(fleet, ...)
  return M.finish(M.start(fleet, { ... }))
end

function M.ctl(fleet, ...)
  return M.run(fleet, "ctl", ...)
end

-- What a command says that succeeds: nothing on stderr, lines of at most 100 columns, nothing that
-- acts on a terminal.
function M.said(code, out, err)
  assert.same({ M.DONE, "" }, { code, err })
  for line in out:gmatch("[^\n]*") do
    assert.is_true(#line <= 100, line)
    assert.is_nil(line:find("[%z\1-\31\127]"), line)
  end
  return out
end

function M.shows(fleet, ...)
  return M.said(M.ctl(fleet, ...))
end

function M.has(text, part)
  assert.truthy(text:find(part, 1, true), ("%q is not in:\n%s"):format(part, text))
end

return M
