-- The settings of a file of client keys, in the form of config_schema.lua.
return {
  { "keys", each = {
    { "name", "label", nil, "who it is, for rows, metrics and errors" },
    { "key", "token", nil, "what the client sends", secret = true },
    { "concurrency", "integer", 0, "requests open at once; 0: unlimited", min = 0, max = 1e6 },
    { "requests_per_minute", "integer", 0, "in any minute; 0: unlimited", min = 0, max = 1e9 },
    { "prompt_tokens_per_minute", "integer", 0, "in any minute, as estimated; 0: unlimited",
      min = 0, max = 1e12 },
  } },
}
