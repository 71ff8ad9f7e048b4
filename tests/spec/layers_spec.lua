-- scripts/layers, on a tree in which every layer includes every header: it must name each include
-- that CMakeLists.txt does not allow, and no other.
local lab = require("spec.support.lab")

local folder

local function write(path, text)
  assert(os.execute(("mkdir -p '%s/%s'"):format(folder, path:match("^(.*)/") or ".")) == 0)
  local file = assert(io.open(folder .. "/" .. path, "w"))
  file:write(text)
  file:close()
end

-- What it says, line by line, and whether it was content.
local function check()
  assert(os.execute(("cd '%s' && git init -q . && git add ."):format(folder)) == 0)
  local pipe = assert(io.popen(("'%s/scripts/layers' 2>&1; echo $?"):format(folder)))
  local lines = {}
  for line in pipe:lines() do lines[#lines + 1] = line end
  pipe:close()
  return lines, table.remove(lines) == "0"
end

-- Layers in their order, and for each what it may include: other layers and libraries.
local function read_layers()
  local order, allowed = {}, {}
  for name, words in lab.read("CMakeLists.txt"):gmatch("\nkvr_layer%((%l+)([^)]*)%)") do
    order[#order + 1] = name
    allowed[name] = { [name] = true }
    for word in words:gmatch("[%w_]+") do allowed[name][word] = true end
  end
  return order, allowed
end

describe("scripts/layers", function()
  before_each(function()
    folder = os.tmpname()
    os.remove(folder)
    write("CMakeLists.txt", lab.read("CMakeLists.txt"))
    write("scripts/lib.sh", lab.read("scripts/lib.sh"))
    write("scripts/layers", lab.read("scripts/layers"))
    assert(os.execute(("chmod +x '%s/scripts/layers'"):format(folder)) == 0)
    for _, header in ipairs({ "uv", "lua", "time", "pthread", "sys/socket" }) do
      write("core/guard/" .. header .. ".h", "#error\n")
    end
  end)
  after_each(function() os.execute(("rm -rf '%s'"):format(folder)) end)

  it("finds every include that points up or sideways", function()
    local order, allowed = read_layers()
    assert.is_true(#order >= 10)
    local expected = {}
    for _, layer in ipairs(order) do
      local text = {}
      write(("core/%s/%s.h"):format(layer, layer), "")
      for i, other in ipairs(order) do
        text[i] = ('#include "%s.h"\n'):format(other)
        if not allowed[layer][other] then
          expected[#expected + 1] = ("core/%s/all.c:%d: %s includes %s.h of %s"):format(layer, i,
            layer, other, other)
        end
      end
      write(("core/%s/all.c"):format(layer), table.concat(text))
    end
    table.sort(expected)
    local said, content = check()
    table.sort(said)
    assert.is_true(#expected >= 40)
    assert.same(expected, said)
    assert.is_false(content)
  end)

  it("finds libraries, clocks and sockets where they do not belong", function()
    local order, allowed = read_layers()
    local headers = { "uv.h", "llhttp.h", "lua.h", "zmq.h", "time.h", "pthread.h", "sys/socket.h" }
    local library = { "UV_INCLUDE_DIRS", "LLHTTP_INCLUDE_DIRS", "LUAJIT_INCLUDE_DIRS", "none" }
    local expected = {}
    for _, layer in ipairs(order) do
      local text = {}
      for i, header in ipairs(headers) do
        text[i] = ("#include <%s>\n"):format(header)
        local at = ("core/%s/all.c:%d: %s in %s"):format(layer, i, header, layer)
        local needs = library[i]
        if needs and (not allowed[layer][needs] or header == "lua.h" and layer == "cli") then
          expected[#expected + 1] = at
        elseif not needs and allowed[layer].PURE then
          expected[#expected + 1] = at .. ", which is pure"
        end
      end
      write(("core/%s/all.c"):format(layer), table.concat(text))
    end
    table.sort(expected)
    local said = check()
    table.sort(said)
    assert.same(expected, said)
  end)

  it("finds the ways around an include", function()
    write("core/base/list.h", "")
    write("core/model/list.h", "")
    write("core/model/a.c", '#include "../net/b.h"\n#include HEADER\nextern int kvr_x;\n'
      .. "void kvr_loop_run(void *loop);\nlong a(void) { return random(); }\n")
    local said, content = check()
    assert.is_false(content)
    assert.same({
      "core/model/list.h: a header of that name is also in base",
      "core/model/a.c:1: include by a path: ../net/b.h",
      "core/model/a.c:2: include by a macro: #include HEADER",
      "core/model/a.c:3: declared by hand: extern int kvr_x;",
      "core/model/a.c:4: declared by hand: void kvr_loop_run(void *loop);",
      "core/model/a.c:5:long a(void) { return random(); }: a clock or dice in model",
    }, said)
  end)

  it("refuses a picture whose arrows run back up", function()
    write("CMakeLists.txt", "kvr_layer(base SEES model)\nkvr_layer(model SEES base)\n")
    assert.same({ "CMakeLists.txt: base sees model, which is not below it" }, (check()))
  end)
end)
