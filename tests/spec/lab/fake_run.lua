-- A run of cells by the fake worker, as a process of its own that a spec can kill:
--   luajit fake_run.lua STORE LOG CELLS MS JOBS
package.path = "scripts/?.lua;scripts/?/init.lua;" .. package.path
local progress = require("kvroute.progress")
local runner = require("kvroute.runner")
local store = require("kvroute.store")

local folder, log, cells, ms, jobs = unpack(arg)
local chains = {}
for i = 1, tonumber(cells) do
  chains[i] = { {
    key = ("%032x"):format(i), texts = {},
    spec = { name = "cell " .. i, value = i, ms = tonumber(ms) },
  } }
end
local ran = runner.run(chains, {
  store = store.open(folder), argv = { "luajit", "tests/spec/lab/fake_worker.lua", log },
  jobs = tonumber(jobs),
  progress = function(total) return progress.new(total, io.stderr, false) end,
})
print(ran.ran, ran.missing, #ran.failures, ran.interrupted)
