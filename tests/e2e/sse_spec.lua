-- Every file of tests/data/sse, played by a replica in pieces cut where it hurts: the client gets
-- the same bytes, and the row has what the stream says.
local cjson = require("cjson")
local dirent = require("posix.dirent")
local check = require("e2e.support.check")
local Fleet = require("e2e.support.fleet")
local loop = require("e2e.support.loop")
local Replica = require("e2e.support.replica")

local FOLDER = "tests/data/sse/"

-- As the README of the folder has it; first is the number of the first event with content, nil
-- where there is none; no cached means that the stream does not tell.
local EXPECTED = {
  openai_chat_usage_final = { events = 0, prompt = 12, output = 100, cached = 0 },
  openai_completion_usage = { events = 25, first = 1, prompt = 31, output = 25 },
  deepseek_tool_call_cached320 =
    { events = 44, first = 2, prompt = 339, output = 83, cached = 320 },
  mistral_hosted_incremental_tool_call =
    { events = 2, first = 1, prompt = 171, output = 14, cached = 128 },
  groq_text_xgroq = { events = 44, first = 2, prompt = 45, output = 662 },
  recreated_vllm_usage_null_details = { events = 6, first = 2, prompt = 1170, output = 7 },
  recreated_vllm_usage_cached1152 =
    { events = 6, first = 2, prompt = 1170, output = 7, cached = 1152 },
  recreated_llamacpp_timings = { events = 3, first = 2, prompt = 1350, output = 4, cached = 1100 },
  recreated_sglang_reasoning = { events = 4, first = 2, prompt = 59, output = 6, cached = 48 },
}

local split_points = cjson.decode(Fleet.read(FOLDER .. "split_points.json"))

local function names()
  local found = {}
  for name in dirent.files(FOLDER) do found[#found + 1] = name:match("^(.*)%.sse$") end
  table.sort(found)
  return found
end

-- The stream's pieces between the given offsets.
local function pieces_at(stream, offsets)
  local pieces, from = {}, 1
  for _, offset in ipairs(offsets) do
    pieces[#pieces + 1] = stream:sub(from, offset)
    from = offset + 1
  end
  pieces[#pieces + 1] = stream:sub(from)
  return pieces
end

local SSE = "Content-Type: text/event-stream\r\n"

-- How an answer's body may be framed: its head, a piece, its end.
local framings = {
  chunked = {
    head = function()
      return "HTTP/1.1 200 OK\r\n" .. SSE .. "Transfer-Encoding: chunked\r\n\r\n"
    end,
    piece = function(piece) return ("%x\r\n%s\r\n"):format(#piece, piece) end,
    finish = function(exchange) exchange:send("0\r\n\r\n") end,
  },
  sized = {
    head = function(stream)
      return "HTTP/1.1 200 OK\r\n" .. SSE .. ("Content-Length: %d\r\n\r\n"):format(#stream)
    end,
    piece = function(piece) return piece end,
    finish = function() end,
  },
  ["until the end"] = {
    head = function() return "HTTP/1.1 200 OK\r\n" .. SSE .. "\r\n" end,
    piece = function(piece) return piece end,
    finish = function(exchange) exchange:close() end,
  },
}

-- Plays the pieces; between(i) comes after each piece. Returns the answer and the row.
local function play(fleet, stream, pieces, framing, between)
  local before = #fleet:rows()
  local client = fleet:connect()
  client:begin(Fleet.chat_request("Hello", { stream = true }))
  local exchange = Replica.take_any(fleet.replicas)
  exchange:send(framing.head(stream))
  for i, piece in ipairs(pieces) do
    exchange:send(framing.piece(piece))
    between(i)
  end
  framing.finish(exchange)
  local answer = client:finish(10)
  client:close()
  check.same_bytes(stream, answer:body())
  return answer, fleet:row(before + 1)
end

local function check_row(row, expected)
  assert.equal("success", row.outcome)
  assert.equal(expected.events, row.events or 0)
  assert.equal(expected.prompt, row.prompt_tokens)
  assert.equal(expected.output, row.output_tokens)
  assert.equal(expected.cached or cjson.null, row.cached_tokens)
  assert.is_true(row.done_seen)
  assert.equal(expected.first ~= nil, row.ttft_ms ~= nil)
  assert.is_true(row.first_byte_ms <= (row.ttft_ms or math.huge))
end

describe("the event streams", function()
  after_each(Fleet.finish)

  it("are all expected, and have split points", function()
    local count = 0
    for _, name in ipairs(names()) do
      assert.is_table(EXPECTED[name], name)
      assert.is_table(split_points[name .. ".sse"], name)
      count = count + 1
    end
    assert.equal(9, count)
  end)

  for _, name in ipairs(names()) do
    local stream = Fleet.read(FOLDER .. name .. ".sse")
    local expected = EXPECTED[name]

    for how, framing in pairs(framings) do
      it(("%s, cut at its split points, %s"):format(name, how), function()
        local fleet = Fleet.start()
        local pieces = pieces_at(stream, split_points[name .. ".sse"])
        local answer, row = play(fleet, stream, pieces, framing, function() loop.sleep(0.005) end)
        check_row(row, expected)
        assert.equal(#stream, row.bytes_out)
        if how == "chunked" then -- framed as the replica framed it
          local framed = {}
          for i, piece in ipairs(pieces) do framed[i] = framing.piece(piece) end
          check.same_bytes(table.concat(framed) .. "0\r\n\r\n",
            answer:bytes():match("\r\n\r\n(.*)$"))
        end
      end)
    end

    it(name .. ", byte by byte", function()
      local fleet = Fleet.start()
      local pieces = {}
      for i = 1, #stream do pieces[i] = stream:sub(i, i) end
      local _, row = play(fleet, stream, pieces, framings.sized, function() loop.step(0) end)
      check_row(row, expected)
    end)

    if expected.first then
      it(name .. " has its first token where its first content is", function()
        local fleet = Fleet.start()
        local first = 0
        for _ = 2, expected.first do first = select(2, stream:find("\n\n", first + 1, true)) end
        local pieces = first > 0 and { stream:sub(1, first), stream:sub(first + 1) }
          or { ": a comment\n\n", stream }
        local _, row = play(fleet, table.concat(pieces), pieces, framings.chunked, function(i)
          if i == 1 then loop.sleep(0.06) end
        end)
        check_row(row, expected)
        assert.is_true(row.first_byte_ms < 50, "first byte " .. row.first_byte_ms)
        assert.is_true(row.ttft_ms >= 58 and row.ttft_ms < 200, "ttft " .. row.ttft_ms)
      end)
    end
  end
end)
