std = "luajit"
max_line_length = 100
files["tests/spec"] = { std = "luajit+busted" }
files["tests/e2e"] = { std = "luajit+busted" }
files["tests/sim"] = { std = "luajit+busted" }
-- A policy sees the sandbox of core/script/sandbox.lua: these names and nothing else of its own.
files["policies"] = { read_globals = { "kvr", "log" } }
files["experiments/policies"] = { read_globals = { "kvr", "log" } }
-- A profile is settings: plain assignments, as in a configuration.
files["core/engine/profiles"] = { ignore = { "111" } }
exclude_files = { "build*", "**/node_modules", "**/.cells" }
