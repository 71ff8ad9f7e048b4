local json = require("kvroute.json")

describe("json", function()
  it("spells equal values alike", function()
    assert.equal('{"a":1,"b":[1,2.5,true,null],"c":{}}',
      json.encode({ c = {}, b = { 1, 2.5, true, json.null }, a = 1 }))
    assert.equal("[]", json.encode(json.list({})))
  end)

  it("reads numbers back to the bit", function()
    math.randomseed(7)
    for i = 1, 2000 do
      local value = (math.random() - 0.5) * 10 ^ math.random(-300, 300)
      if i % 3 == 0 then value = math.floor(value) end
      assert.equal(value, tonumber(json.encode(value)))
    end
    assert.equal("0.1", json.encode(0.1))
    assert.equal("9007199254740991", json.encode(2 ^ 53 - 1))
    assert.equal("[null,null]", json.encode({ 0 / 0, math.huge }))
  end)

  it("escapes what must be, and reads it back", function()
    local odd = 'a"b\\c\n\t\r\1\127ü'
    assert.equal(odd, json.decode(json.encode({ odd }))[1])
    assert.is_nil(json.encode(odd):find("[%c]"))
  end)

  it("is read line by line when it is pretty, but for lists of plain items", function()
    assert.equal('{\n  "a": [1,2],\n  "b": {},\n  "c": [\n    {\n      "d": 1\n    }\n  ]\n}',
      json.encode({ a = { 1, 2 }, b = {}, c = { { d = 1 } } }, true))
    assert.same({ a = { 1, 2 } }, json.decode(json.encode({ a = { 1, 2 } }, true)))
  end)

  it("refuses what is no data", function()
    assert.has_error(function() json.encode({ print }) end, "a function is not data")
    assert.has_error(function() json.encode({ [true] = 1 }) end,
      "a table with the key true is neither a list nor an object")
  end)
end)
