-- kvroute run for specs: a folder of its own for cells, and what it printed where.
local lfs = require("lfs")
local stdlib = require("posix.stdlib")

local M = {}

M.binary = (os.getenv("KVR_BUILD") or "build") .. "/kvroute"

local function quote(text) return "'" .. text:gsub("'", "'\\''") .. "'" end

function M.new_folder()
  return assert(stdlib.mkdtemp((os.getenv("TMPDIR") or "/tmp") .. "/kvroute-lab-XXXXXX"))
end

function M.remove_folder(path)
  os.execute("rm -rf " .. quote(path))
end

function M.read(path)
  local file = assert(io.open(path, "rb"))
  local text = file:read("*a")
  file:close()
  return text
end

function M.write(path, text)
  local file = assert(io.open(path, "wb"))
  file:write(text)
  assert(file:close())
  return path
end

---Runs it with these arguments; what it keeps goes below `folder`.
---@return integer code, string out, string err
function M.run(folder, ...)
  local words = { quote(M.binary), "run" }
  for _, word in ipairs({ ... }) do words[#words + 1] = quote(word) end
  local out, err = folder .. "/stdout", folder .. "/stderr"
  local command = ("%s >%s 2>%s"):format(table.concat(words, " "), quote(out), quote(err))
  local status = os.execute(command)
  return math.floor(status / 256), M.read(out), M.read(err)
end

---Files below a folder by their path in it, with what is in them.
function M.files(folder, into, prefix)
  into, prefix = into or {}, prefix or ""
  for name in lfs.dir(folder) do
    local path = folder .. "/" .. name
    if name ~= "." and name ~= ".." then
      if lfs.attributes(path, "mode") == "directory" then
        M.files(path, into, prefix .. name .. "/")
      else
        into[prefix .. name] = M.read(path)
      end
    end
  end
  return into
end

return M
