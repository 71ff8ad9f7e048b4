-- Files of the store: whole or not there, whoever writes beside.
local lfs = require("lfs")
local stdlib = require("posix.stdlib")
local store = require("kvroute.store")

describe("store", function()
  local folder
  before_each(function()
    folder = assert(stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-store-XXXXXX"))
  end)
  after_each(function() os.execute("rm -rf " .. folder) end)

  local function names()
    local out = {}
    for name in lfs.dir(folder) do
      if name:sub(1, 1) ~= "." then out[#out + 1] = name end
    end
    table.sort(out)
    return out
  end

  it("has the old file until the new one is kept", function()
    local path = folder .. "/rows"
    store.write_file(path, "old")
    local draft = store.draft(path)
    draft:write("new")
    assert.equal("old", store.read_file(path))
    draft:keep()
    assert.equal("new", store.read_file(path))
    store.draft(path):drop()
    assert.equal("new", store.read_file(path))
    assert.same({ "rows" }, names())
  end)

  it("does not share a draft with another process", function()
    local path = folder .. "/rows"
    local ours = store.draft(path)
    ours:write("ours")
    assert.equal(0, os.execute(([[luajit -e '
      package.path = "scripts/?.lua;" .. package.path
      local draft = require("kvroute.store").draft("%s")
      draft:write("theirs")
      draft:keep()']]):format(path)))
    assert.equal("theirs", store.read_file(path))
    ours:keep()
    assert.equal("ours", store.read_file(path))
    assert.same({ "rows" }, names())
  end)

  it("says so when it cannot be written, and leaves nothing", function()
    assert.has_error(function() store.draft(folder .. "/none/rows") end)
    local draft = store.draft(folder .. "/rows")
    draft.file:close()
    draft.file = io.open("/dev/full", "wb") -- a full disk
    local ok, why = pcall(function()
      draft:write("some bytes")
      draft:keep()
    end)
    assert.is_false(ok)
    assert.is_truthy(why:find("cannot write .*/rows: No space left on device"), why)
    assert.same({}, names())
  end)

  it("takes only whole results of that cell", function()
    local all = store.open(folder)
    all:write({ key = "abcd", cell = { seed = 1 }, result = { good = 1 } })
    assert.equal(1, all:read("abcd").result.good)
    for _, text in ipairs({ "", "{", "[]", '{"key":"abcd"}',
      '{"key":"other","cell":{},"result":{}}',
      '{"key":"abcd","cell":{},"result":null}' }) do
      store.write_file(all:path("abcd"), text)
      assert.is_nil(all:read("abcd"), text)
    end
  end)
end)
