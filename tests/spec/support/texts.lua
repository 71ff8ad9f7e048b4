-- Texts as files, for as long as a spec runs.
--
--   teardown(texts.remove)
--   local path = texts.file("a,b\n1,2\n")
local M = {}

local paths = {}

-- Has it removed, too.
function M.keep(path)
  paths[#paths + 1] = path
  return path
end

function M.file(text, suffix)
  local path = M.keep(os.tmpname())
  if suffix then path = M.keep(path .. suffix) end
  local file = assert(io.open(path, "wb"))
  file:write(text)
  file:close()
  return path
end

function M.remove()
  for _, path in ipairs(paths) do os.remove(path) end
  paths = {}
end

return M
