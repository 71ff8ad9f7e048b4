-- The scripts that README names: what they prove, and what they refuse before they do anything.

local function run(command)
  local pipe = assert(io.popen(command .. " 2>&1; echo \"exit $?\""))
  local text = pipe:read("*a")
  pipe:close()
  return text, tonumber(text:match("exit (%d+)\n$"))
end

local function read(path)
  local file = assert(io.open(path))
  local text = file:read("*a")
  file:close()
  return text
end

describe("quickstart", function()
  it("--once proves each step, on ports of its own", function()
    local text, code = run("scripts/quickstart --once")
    assert.are.equal(0, code, text)
    local _, proved = text:gsub("  proved: ", "")
    assert.are.equal(8, proved, text)
    assert.is_truthy(text:find("quickstart: all proved\n", 1, true), text)
    assert.is_nil(text:find("\27", 1, true), "colours, and no terminal")
    local warm, cold = text:match("first token after ([%d.]+) ms; it was ([%d.]+) ms")
    assert.is_true(tonumber(warm) < tonumber(cold), text)
  end)

  it("names a port that is taken, and touches nothing", function()
    local socket = require("socket")
    local listener = assert(socket.bind("127.0.0.1", 0))
    local _, port = listener:getsockname()
    local text, code = run("scripts/quickstart --port " .. port)
    listener:close()
    assert.are.equal(1, code, text)
    assert.is_truthy(text:find("127.0.0.1:" .. port, 1, true), text)
    assert.is_nil(text:find("==>", 1, true), text)
  end)
end)

describe("a script that is given what it does not know", function()
  for _, command in ipairs({
    "quickstart --bogus", "quickstart --once --bogus", "quickstart --port", "quickstart --port x",
    "quickstart --port 65535", "setup --bogus", "setup --check --bench", "test --bogus",
    "test unit bogus", "check --bogus", "layers bogus", "bench --bogus", "bench scan index",
    "bench_overhead bogus",
  }) do
    it("does nothing: " .. command, function()
      local text, code = run("timeout 10 scripts/" .. command)
      assert.are.equal(1, code, text)
      assert.is_truthy(text:match("^error: [^\n]+\nexit 1\n$"), text)
    end)
  end

  for _, script in ipairs({ "quickstart", "setup", "test", "check", "layers", "bench",
    "bench_overhead", "fuzz" }) do
    it("tells what it is for when asked: " .. script, function()
      local text, code = run("cd scripts && timeout 10 ./" .. script .. " --help")
      assert.are.equal(0, code, text)
      local _, second = read("scripts/" .. script):match("^([^\n]*)\n# ([^\n]*)")
      assert.are.equal(second, text:match("^[^\n]*"))
    end)
  end
end)

describe("a bench", function()
  it("without a valid window says so, and no figure", function()
    -- No window has less than nothing of others in it.
    local text, code = run(("FOREIGN_MAX=-1 TURNS=0.2 KVR_BUILD=%s luajit scripts/bench_proxy.lua")
      :format(os.getenv("KVR_BUILD") or "build"))
    if text:find("no port could be had for nginx", 1, true) then
      return pending("needs the peers of scripts/setup --bench") -- luacheck: globals pending
    end
    assert.are.equal(1, code, text)
    assert.is_truthy(text:match("^proxy: no valid window for kvroute: in all %d+ of them others "
      .. "used too much of the machine\nexit 1\n$"), text)
  end)
end)

describe("README.md", function()
  local readme = read("README.md")

  it("is one that can be read at a sitting", function()
    local _, lines = readme:gsub("\n", "")
    assert.is_true(lines <= 150, lines .. " lines")
  end)

  it("names files that are there", function()
    local names = {}
    for link in readme:gmatch("%]%(([^)]+)%)") do names[#names + 1] = link:match("^[^#]+") end
    for word in readme:gmatch("scripts/([%w_]+)") do names[#names + 1] = "scripts/" .. word end
    for folder in (readme .. "\n## "):match("## Where things are\n(.-)\n## "):gmatch("\n (%w+/)") do
      names[#names + 1] = folder
    end
    assert.is_true(#names > 10)
    for _, name in ipairs(names) do
      assert.are.equal(0, os.execute("test -e " .. name), name)
    end
  end)
end)
