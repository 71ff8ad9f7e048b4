local lfs = require("lfs")
local figure = require("kvroute.figure")
local palette = require("kvroute.palette")
local store = require("kvroute.store")

local folder
local function base(name) return folder .. "/" .. name end

local function lines(name, title)
  figure.lines(base(name), {
    title = title or "it's 100 % {of} _it_", note = "medians",
    x = { label = "users", log2 = true }, y = { label = "goodput (requests/s)", min = 0 },
    series = { { name = "prefix_affinity", points = {
      { x = 1, y = 1, low = 0.9, high = 1.2 }, { x = 2 }, { x = 4, y = 3, marked = true },
    } } },
  })
end

describe("a figure", function()
  setup(function()
    folder = os.tmpname()
    os.remove(folder)
    assert(lfs.mkdir(folder))
  end)
  teardown(function() os.execute("rm -r " .. folder) end)

  it("is an SVG and a PNG, the same bytes each time", function()
    lines("a")
    local svg, png = store.read_file(base("a.svg")), store.read_file(base("a.png"))
    assert.truthy(svg:find("goodput (requests/s)", 1, true))
    local r, g, b = palette.colour("prefix_affinity"):match("#(%x%x)(%x%x)(%x%x)")
    assert.truthy(svg:find(("rgb(%3d, %3d, %3d)"):format(tonumber(r, 16), tonumber(g, 16),
      tonumber(b, 16)), 1, true))
    assert.equal("\137PNG", png:sub(1, 4))
    lines("a")
    assert.equal(svg, store.read_file(base("a.svg")))
    assert.equal(png, store.read_file(base("a.png")))
  end)

  it("shows texts as they are", function()
    lines("b")
    assert.truthy(store.read_file(base("b.svg")):find("it's 100 % {of} _it_", 1, true))
  end)

  it("is bars and grids, too", function()
    figure.bars(base("c"), {
      title = "bars", y = { label = "tokens" }, groups = { "0", "1" },
      series = { { name = "round_robin", values = { { y = 2, low = 1, high = 3 }, false } } },
    })
    figure.heat(base("d"), {
      title = "grid", x = { label = "skew", values = { 0, 1.4 } },
      y = { label = "working set", values = { 1 } },
      cells = { { x = 1, y = 1, value = 40, text = "+40 %" },
        { x = 2, y = 1, value = 3, text = "+3 %\nin spread", grey = true } },
    })
    figure.rows(base("f"), {
      title = "lying", x = { label = "us" }, groups = { "p50", "p99" },
      series = { { name = "round_robin", values = { { y = 21, low = 20, high = 24 }, { y = 87 } } },
        { name = "p2c", values = { false, false } } },
    })
    local lying = store.read_file(base("f.svg"))
    for _, text in ipairs({ "round_robin", "p2c", "p50  21", "p99  87" }) do
      assert.truthy(lying:find(text, 1, true), text)
    end
    assert.truthy(store.read_file(base("c.svg")):find("tokens", 1, true))
    assert.truthy(store.read_file(base("d.svg")):find("in spread", 1, true))
  end)

  it("leaves nothing else behind", function()
    lines("e")
    for name in lfs.dir(folder) do
      assert.truthy(name:find("^%.+$") or name:find("%.svg$") or name:find("%.png$"), name)
    end
  end)
end)

describe("the palette", function()
  it("gives each known policy a colour of its own", function()
    local seen = {}
    for _, name in ipairs({ "round_robin", "least_outstanding", "session_affinity",
      "bounded_session_affinity", "prefix_hash", "prefix_affinity", "exact_residency" }) do
      assert.is_nil(seen[palette.colour(name)])
      seen[palette.colour(name)] = true
    end
  end)

  it("gives any other name the same one each time", function()
    assert.equal(palette.colour("mine"), palette.colour("mine"))
  end)

  it("orders known policies, and others after them by name", function()
    local names = { "zebra", "prefix_affinity", "ape", "round_robin", "prefix_affinity spill=off" }
    table.sort(names, palette.before)
    assert.same({ "round_robin", "prefix_affinity", "prefix_affinity spill=off", "ape", "zebra" },
      names)
  end)
end)
