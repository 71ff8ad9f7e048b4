-- Texts for prompts.
local M = {}

---So many bytes without repetition, the same each time.
function M.long(bytes)
  local words, length, i = {}, 0, 0
  while length < bytes do
    i = i + 1
    words[i] = ("%x "):format(i * 2654435761 % 4294967296)
    length = length + #words[i]
  end
  return table.concat(words):sub(1, bytes)
end

return M
