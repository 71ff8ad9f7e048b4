-- The whole pressure grid from a cold store, as experiments/pressure_map.lua has it with five
-- seeds: nine policies, twelve points, 540 cells of 300 simulated seconds, on all cores. The best
-- of RUNS.
--
--   seconds_540_cells       on the clock
--   cpu_seconds_540_cells   of all processes: what it takes on one core, disturbed or not
package.path = "scripts/?.lua;" .. package.path
local times = require("posix.sys.times")
local bench = require("kvroute.bench")

local RUNS = tonumber(os.getenv("RUNS") or 2)
local CELLS = 540

local function children_cpu_s()
  local t = times.times()
  return t.tms_cutime + t.tms_cstime -- whole seconds
end

bench.run(function()
  local seconds, cpu_s = math.huge, math.huge
  for run = 1, RUNS do
    local cpu, began = children_cpu_s(), bench.now()
    local code, out = bench.finish(bench.start(nil, { bench.build .. "/kvroute", "run",
      "experiments/pressure_map.lua", "--seeds", "5", "--out", ("%s/cells%d"):format(bench.work,
        run) }))
    local took = bench.now() - began
    local cells = #(io.popen(("find %s/cells%d -name '*.json'"):format(bench.work, run)):read("*a")
      :gsub("[^\n]", ""))
    if code ~= 0 or cells ~= CELLS then
      bench.fail(("grid: %d cells of %d, exit %d: %s"):format(cells, CELLS, code, out:sub(-300)))
    end
    seconds, cpu_s = math.min(seconds, took), math.min(cpu_s, children_cpu_s() - cpu)
  end
  bench.figure("grid", "seconds_540_cells", seconds, "s")
  bench.figure("grid", "cpu_seconds_540_cells", cpu_s, "s")
end)
