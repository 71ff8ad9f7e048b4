-- The settings of a configuration file: names, kinds, ranges, defaults, and what they mean.
--
-- A setting is { name, kind, default, what, min/max or one_of }; a section is { name, { ... } };
-- `each` is the shape of every item of a list, which has at most `most`. `needed` allows no empty
-- value. The kinds are those of config.lua.
local off = "0: off"

return {
  { "listen", "addresses", "127.0.0.1:8080", "where requests come in; one address or a list" },
  { "admin", {
    { "listen", "address", "127.0.0.1:8081", "where status and commands come in" },
    { "token", "text", "", "bearer token; needed when listen is not loopback", secret = true },
  } },
  { "replicas", each = {
    { "url", "url", nil, "http://host:port of an engine" },
    { "weight", "number", 1, "share of the load", min = 0.001, max = 1000 },
    { "capacity", "integer", 0, "most requests in flight; 0: unlimited", min = 0, max = 1e6 },
    { "key", "text", "", "bearer token for requests, probes and scrapes", secret = true },
    { "models", "texts", {}, "models served; empty: asked of the engine" },
    { "any_model", "boolean", false, "serves whatever model is named (llama.cpp)" },
    { "rank", "integer", -1, "data-parallel rank; -1: none", min = -1, max = 65535 },
  } },
  { "policy", "name", "prefix_affinity", "routing policy: a file of policies_dir, without .lua" },
  { "params", "params", {}, "params of the policy" },
  { "spill", "name", "", "spill rule; empty: the policy's default" },
  { "spill_params", "params", {}, "params of the spill rule" },
  { "canary", {
    { "policy", "name", "", "a second policy; empty: none" },
    { "params", "params", {}, "its params" },
    { "share", "number", 0, "share of sessions it decides", min = 0, max = 1 },
    { "by", "text", "session", "of what it has a share", one_of = { "session", "key" } },
  } },
  { "gate", {
    { "file", "text", "", "of kvroute gate --out: vouches for a policy, whose guard then runs" },
    { "baseline", "name", "", "policy that takes over when traffic leaves it; empty: the gate's" },
    { "window_ms", "integer", 20000, "over which live traffic is held against it", min = 1000,
      max = 3600000 },
    { "requests_min", "integer", 100, "of a window, to say anything of it", min = 1, max = 1e6 },
  } },
  -- A text stands for an item with that policy.
  { "shadow", most = 4, short = "policy", each = {
    { "policy", "name", nil, "a policy that only tells what it would have done", needed = true },
    { "params", "params", {}, "its params; spill = NAME: its spill rule" },
    { "spill_params", "params", {}, "params of its spill rule" },
  } },
  { "policies_dir", "text", "", "folder of the scripts; empty: found beside the binary" },
  { "scripts", {
    { "budget_ms", "integer", 50, "CPU time after which a call is left", min = 1, max = 60000 },
    { "memory_mb", "integer", 32, "Lua heap of one script", min = 1, max = 4096 },
  } },
  { "session", {
    { "key", "text", "", "header or body field that names the session, before all others" },
  } },
  { "tenant", {
    { "key", "text", "", "header or body field that names the tenant; empty: none" },
  } },
  { "routing", {
    { "by", "text", "session", "what requests are counted and planned by",
      one_of = { "session", "tenant", "key", "blocks" } },
    { "key", "text", "", "header or body field, for routing.by = \"key\"" },
    { "blocks", "integer", 16, "of the prompt, the first, for routing.by = \"blocks\"", min = 1,
      max = 524288 },
  } },
  { "keys", {
    { "window_s", "number", 180, "over which requests are counted by routing key", min = 1,
      max = 86400 },
    { "cells", "integer", 131072, "counts kept: a key has one, and one a replica it went to",
      min = 2, max = 16777216 },
  } },
  { "plan", {
    { "interval_s", "number", 0, "between two plans from live traffic; " .. off, min = 0,
      max = 86400 },
    { "file", "text", "", "a plan to begin with, as kvroute plan --out writes it" },
    { "slots", "integer", 0, "keys' copies for each replica, on average; 0: no bound", min = 0,
      max = 1e7 },
    { "q_cap", "number", 0, "most requests/s of one copy: hotter keys have more; " .. off, min = 0,
      max = 1e9 },
    { "skip", "boolean", false, "pass over a key that does not fit, instead of ending there" },
    { "phi", "number", 0, "most load of one copy over the replicas' mean; " .. off, min = 0,
      max = 1000 },
    { "tokens", "number", 0, "of prefixes for each replica, in place of slots, by each key's mean "
      .. "prompt; " .. off, min = 0, max = 1e12 },
    { "residency_s", "number", 0, "how long an idle prefix stays in a cache, for tokens; " .. off,
      min = 0, max = 1e6 },
    { "keep", "boolean", false, "what is placed stays where it is, within the next three" },
    { "theta", "number", 0, "... no load is over 1 + theta times the mean", min = 0, max = 1000 },
    { "move_budget", "number", 0, "... or so much of all rate has been moved", min = 0, max = 1 },
    { "loyalty", "number", 1, "a key of the last plan counts so many times its rate", min = 1,
      max = 1000 },
    { "life_s", "number", 0, "a plan must pay for its warm-up within this; 0: always installed",
      min = 0, max = 1e6 },
    { "handover_every", "integer", 0, "one request in so many warms a moved key's new replica; "
      .. off, min = 0, max = 1000 },
    { "handover_s", "number", 60, "after which a key has moved in any case", min = 0.1, max = 1e6 },
  } },
  { "index", {
    { "block_bytes", "integer", 64, "bytes of prompt in one block", min = 16, max = 256 },
    { "wide_after", "integer", 0, "bytes after which blocks are four times as wide; " .. off,
      min = 0, max = 1e9 },
    { "ttl_ms", "integer", 120000, "time after which a belief ends", min = 1000, max = 86400000 },
    { "memory_mb", "integer", 64, "memory of all beliefs", min = 2, max = 65536 },
    { "nodes", "integer", 0, "most blocks; 0: as memory allows", min = 0, max = 1e9 },
    { "nodes_per_replica", "integer", 0, "most blocks of one; " .. off, min = 0, max = 1e9 },
    { "replies", "boolean", false, "believe that a reply's blocks are held, too" },
  } },
  { "ring", {
    { "vnodes", "integer", 128, "points of a replica of weight 1", min = 1, max = 4096 },
  } },
  { "health", {
    { "path", "path", "/health", "what a probe asks for" },
    { "interval_ms", "integer", 1000, "between two probes", min = 10, max = 3600000 },
    { "timeout_ms", "integer", 800, "of one probe", min = 10, max = 3600000 },
    { "failures", "integer", 2, "in a row, to eject", min = 1, max = 100 },
    { "passes", "integer", 2, "in a row, to readmit", min = 1, max = 100 },
    { "ramp_ms", "integer", 10000, "until a returned replica has its full share; " .. off,
      min = 0, max = 3600000 },
  } },
  { "scrape", {
    { "enabled", "boolean", true, "read the engines' metric pages" },
    { "path", "path", "/metrics", "of the page" },
    { "interval_ms", "integer", 1000, "between two readings", min = 10, max = 3600000 },
    { "timeout_ms", "integer", 800, "of one reading", min = 10, max = 3600000 },
  } },
  { "models", {
    { "refresh_ms", "integer", 10000, "between two questions for /v1/models", min = 100,
      max = 86400000 },
  } },
  { "dns", {
    { "refresh_ms", "integer", 30000, "between look-ups of a replica's name; 0: only when it fails",
      min = 0, max = 86400000 },
  } },
  { "preserve_host", "boolean", false, "replicas see the client's Host, not their own" },
  { "strip_headers", "texts", {}, "names of request headers that replicas do not see" },
  { "client_keys", "text", "", "file of client keys; empty: every client is served" },
  { "moves", "integer", 2, "times a request may move to another replica", min = 0, max = 4 },
  { "limits", {
    { "header_bytes", "integer", 65536, "of a request's head", min = 1024, max = 16777216 },
    { "header_count", "integer", 100, "header lines of a request", min = 8, max = 100 },
    { "body_bytes", "integer", 33554432, "of a request's body", min = 1024, max = 2147483648 },
    { "bodies_total_bytes", "integer", 1073741824, "of all bodies held", min = 1024, max = 1e12 },
    { "connections", "integer", 16384, "of clients", min = 1, max = 1e6 },
    { "requests", "integer", 16384, "open at once, streams and waiting ones too", min = 1,
      max = 1e6 },
    { "replicas", "integer", 64, "members of the fleet", min = 1, max = 1024 },
    { "stream_buffer_bytes", "integer", 65536, "held for one stream", min = 4096, max = 67108864 },
  } },
  { "streams", {
    { "gather_us", "integer", 100, "while busy with events, they are taken together once in this "
      .. "time; " .. off, min = 0, max = 1000 },
  } },
  { "queue", {
    { "max", "integer", 0, "requests that may wait for a replica; 0: they are refused", min = 0,
      max = 1e6 },
    { "deadline_ms", "integer", 30000, "longest wait of one", min = 1, max = 86400000 },
    { "order", "text", "fifo", "who goes first; shortest: the least still to prefill",
      one_of = { "fifo", "shortest" } },
  } },
  { "timeouts", {
    { "connect_ms", "integer", 5000, "to a replica", min = 1, max = 86400000 },
    { "first_byte_ms", "integer", 0, "of an answer; " .. off, min = 0, max = 86400000 },
    { "idle_ms", "integer", 0, "between bytes of an answer; " .. off, min = 0, max = 86400000 },
    { "total_ms", "integer", 0, "of a request; " .. off, min = 0, max = 86400000 },
    { "by_header_max_ms", "integer", 0, "a request's x-kvroute-*timeout-ms headers may lengthen "
      .. "these up to this; 0: only shorten", min = 0, max = 86400000 },
    { "client_idle_ms", "integer", 75000, "of a client's connection between requests", min = 100,
      max = 86400000 },
    { "client_body_ms", "integer", 30000, "for a request to arrive, and 1 s a 32 KiB of it",
      min = 100, max = 86400000 },
    { "client_stall_ms", "integer", 30000, "of a client that takes nothing of its answer",
      min = 100, max = 86400000 },
    { "pool_idle_ms", "integer", 4000, "of a connection to a replica", min = 100, max = 86400000 },
    { "unready_ms", "integer", 0, "after SIGTERM in which /readyz says 503 and requests are still "
      .. "taken, for what balances load over routers to see it", min = 0, max = 86400000 },
    { "client_parting_ms", "integer", 1000, "since a client came or was answered in which it may "
      .. "ask once more, when the router ends", min = 0, max = 86400000 },
    { "drain_ms", "integer", 30000, "for streams to end, after that", min = 0, max = 86400000 },
  } },
  { "rows", {
    { "path", "text", "", "file of one JSON object a request; empty: none" },
    { "blocks", "boolean", false, "with the block chain, so that rows can be replayed" },
    { "max_bytes", "integer", 268435456, "of one file", min = 4096, max = 1e12 },
    { "keep", "integer", 8, "rotated files kept", min = 1, max = 10000 },
    { "flush_ms", "integer", 200, "after which rows are written", min = 1, max = 60000 },
  } },
  { "headers", "boolean", true, "answer with x-kvroute-* headers" },
  { "seed", "integer", 1, "of everything random", min = 0, max = 9007199254740992 },
  { "log_level", "text", "info", "of the router's own log",
    one_of = { "error", "warn", "info", "debug" } },
}
