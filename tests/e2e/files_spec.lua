-- Files that commands are given: what never ends is refused or bounded, and pipes, as a shell's
-- <(...) is one, are files like others.
local posix_stat = require("posix.sys.stat")
local Fleet = require("e2e.support.fleet")
local process = require("e2e.support.process")

local SECONDS = 20 -- bound; nothing here takes more than two

local RATES = "key,rate\na,3\nb,2\n"

local folder, runs = nil, 0

-- A script for bash, in which $kvroute is the binary; its exit status, and what it said.
local function shell(script)
  runs = runs + 1
  local path = ("%s/run.%d"):format(folder, runs)
  local run = process.start({ "/bin/bash", "-c", script }, { out = path .. ".out",
    err = path .. ".err", env = { kvroute = Fleet.binary, KVROUTE_ADMIN = "127.0.0.1:1" } })
  local how, code = run:wait(SECONDS)
  assert(how == "exited", ("%s: %s"):format(script, how))
  return code, run:stdout(), run:stderr()
end

-- Every command that reads a file: FILE is its place.
local COMMANDS = {
  "plan --destinations 2 --rates FILE",
  "plan --destinations 2 --rates rates.csv --last FILE",
  "plan --destinations 2 --rows FILE",
  "gate --candidate p2c --profile simple --rows FILE",
  "gate --candidate FILE --profile simple --rows rates.csv",
  "gate --candidate p2c --profile FILE --rows rows.jsonl --format rows",
  "import rows FILE",
  "import mooncake mooncake.jsonl --turns FILE",
  "compare FILE",
  "rescore FILE",
  "run FILE",
  "load http://127.0.0.1:1 --trace FILE",
  "load http://127.0.0.1:1 --times FILE",
  "load http://127.0.0.1:1 --users 1 --key-file FILE",
  "replica --profile FILE",
  "fleet --profile FILE",
  "serve --config FILE",
  "ctl explain FILE",
  "ctl add http://127.0.0.1:1 key=@FILE",
}

describe("a file that a command is given", function()
  setup(function()
    folder = Fleet.new_folder()
    Fleet.write(folder .. "/rates.csv", RATES)
    Fleet.write(folder .. "/mooncake.jsonl",
      '{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [1, 2]}\n')
    local rows = {}
    for i = 1, 400 do rows[i] = '{"at_ms":' .. i .. ',"input_tokens":9,"output_tokens":1}\n' end
    Fleet.write(folder .. "/rows.jsonl", table.concat(rows))
    assert(posix_stat.mkfifo(folder .. "/pipe", 384))
  end)
  teardown(function() Fleet.remove_folder(folder) end)
  after_each(process.kill_all)

  local function in_folder(script) return shell("cd '" .. folder .. "'; " .. script) end

  for _, command in ipairs(COMMANDS) do
    it("is no device: " .. command, function()
      local code, _, err = in_folder("$kvroute " .. command:gsub("FILE", "/dev/zero"))
      assert.is_true(code == 1 or code == 2, code .. err)
      assert.truthy(err:find("cannot read /dev/zero: it is a device", 1, true), err)
    end)

    it("may be a pipe that never ends, but is not read on and on: " .. command, function()
      local code, _, err = in_folder("yes '\"y\"' | $kvroute "
        .. command:gsub("FILE", "/dev/stdin"))
      assert.is_true(code ~= 0, code .. err)
      assert.is_nil(err:find("cannot read", 1, true), err)
    end)
  end

  it("is no pipe that nobody writes to", function()
    for _, command in ipairs({ COMMANDS[1], "serve --config FILE" }) do
      local code, _, err = in_folder("$kvroute " .. command:gsub("FILE", "pipe"))
      assert.is_true(code == 1 or code == 2, code .. err)
      assert.truthy(err:find("cannot read pipe: it is a pipe that nobody writes to", 1, true), err)
    end
  end)

  it("may be a pipe: one by name whose writer comes later, one of the shell, standard input",
    function()
      local _, expected = in_folder("$kvroute plan --destinations 2 --rates rates.csv --json")
      assert.truthy(expected:find('"admitted"', 1, true), expected)
      for _, script in ipairs({
        "cat rates.csv > pipe & $kvroute plan --destinations 2 --rates pipe --json",
        "$kvroute plan --destinations 2 --rates <(cat rates.csv) --json",
        "$kvroute plan --destinations 2 --rates <(head -c 12 rates.csv; sleep 0.1; "
          .. "tail -c +13 rates.csv) --json",
        "$kvroute plan --destinations 2 --rates - --json < rates.csv",
        "cat rates.csv | $kvroute plan --destinations 2 --rates /dev/stdin --json",
      }) do
        assert.same({ 0, expected, "" }, { in_folder(script) }, script)
      end
    end)

  it("may be a pipe for an experiment, a profile and a configuration, too", function()
    local code, out, err = shell("$kvroute run <(cat experiments/hello.lua) --list")
    assert.equal(0, code, err)
    assert.truthy(out:find("session_affinity", 1, true), out)
    -- What they say is about what was read.
    for words, what in pairs({ ["serve --config"] = "listn", ["replica --profile"] = "/dev/fd/" })
    do
      code, out, err = in_folder(("$kvroute %s <(echo 'listn = 1')"):format(words))
      assert.is_true(code ~= 0, out)
      assert.truthy(err:find(what, 1, true), err)
      assert.is_nil(err:find("cannot read", 1, true), err)
    end
  end)
end)
