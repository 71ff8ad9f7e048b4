-- The proxies that benches compare: kvroute, the load balancers an operator would take instead, and
-- a relay that shows what any proxy must cost; each on one core, before the same backends, with
-- connections to them kept.
local bench = require("kvroute.bench")

local M = {}

local started = 0 -- kvroutes

local function upstreams(ports, prefix, suffix)
  local lines = {}
  for i, port in ipairs(ports) do lines[i] = prefix:format(i) .. port .. suffix end
  return table.concat(lines, "\n")
end

---@return integer pid, integer port
function M.kvroute(core, ports, settings)
  started = started + 1
  local argv = { bench.build .. "/kvroute", "serve", "-l", "127.0.0.1:0", "-s",
    "admin.listen=127.0.0.1:0", "-s", "log_level=warn", "-s",
    "rows.path=" .. bench.work .. "/rows." .. started, "-s", "rows.max_bytes=67108864",
    "-s", "rows.keep=1" }
  for _, setting in ipairs(settings or {}) do
    argv[#argv + 1] = "-s"
    argv[#argv + 1] = setting
  end
  for _, backend in ipairs(ports) do
    argv[#argv + 1] = "-r"
    argv[#argv + 1] = "http://127.0.0.1:" .. backend
  end
  local pid = bench.start(core, argv)
  local port, admin = M.kvroute_ports(pid)
  bench.await(port, "/readyz")
  return pid, port, admin
end

---Where a kvroute that was started with port 0 serves.
---@return integer port, integer admin
function M.kvroute_ports(pid)
  return bench.await_output(pid, "serving on %S+:(%d+) admin %S+:(%d+)\n")
end

-- Starts one that must be told its port. Between the choice and its start another may take it: then
-- it ends, and the next port is tried.
local function start_on_some_port(start)
  for _ = 1, 10 do
    local port = bench.free_port()
    local pid = start(port)
    if bench.await(port, "/health", pid) then return pid, port end
  end
  bench.fail("no port could be had for nginx or haproxy")
end

local function nginx_on(port, core, ports, options)
  local log = options.logs and bench.work .. "/nginx.log combined buffer=64k flush=1s" or "off"
  local conf = bench.write("nginx." .. port .. ".conf", ([[
worker_processes 1;
daemon off;
master_process off;
pid %s/nginx.%d.pid;
error_log stderr error;
worker_rlimit_nofile 16384;
events { worker_connections 8192; }
http {
  access_log %s;
  client_body_buffer_size 512k;
  client_max_body_size 64m;
  keepalive_requests 100000000;
  client_body_temp_path %s/nginx_body;
  proxy_temp_path %s/nginx_proxy;
  fastcgi_temp_path %s/nginx_f; uwsgi_temp_path %s/nginx_u; scgi_temp_path %s/nginx_s;
  upstream replicas { least_conn;
%s
    keepalive 512; keepalive_requests 100000000; }
  server { listen 127.0.0.1:%d backlog=4096;
    location / { proxy_pass http://replicas; proxy_http_version 1.1;
      proxy_set_header Connection ""; proxy_buffering %s; } }
}
]]):format(bench.work, port, log, bench.work, bench.work, bench.work, bench.work, bench.work,
    upstreams(ports, "    server 127.0.0.1:", ";"), port,
    options.stream and "off" or "on"))
  return bench.start(core, { "nginx", "-c", conf, "-p", bench.work })
end

local function haproxy_on(port, core, ports, options)
  local conf = bench.write("haproxy." .. port .. ".cfg", ([[
global
  nbthread 1
  maxconn 8192
  tune.bufsize 32768
%s
defaults
  mode http
  timeout connect 5s
  timeout client 300s
  timeout server 300s
  option http-keep-alive
  option http-no-delay
  http-reuse always
%s
frontend in
  bind 127.0.0.1:%d
  default_backend replicas
backend replicas
  balance leastconn
%s
]]):format(options.logs and "  log stdout format raw local0" or "",
    options.logs and "  log global\n  option httplog" or "", port,
    upstreams(ports, "  server r%d 127.0.0.1:", "")))
  return bench.start(core, { "haproxy", "-db", "-f", conf })
end

---@param options? {stream: boolean, logs: boolean} relays each event as it comes; writes a line for
---each request to a file, as its operators have it do
function M.nginx(core, ports, options)
  return start_on_some_port(function(port) return nginx_on(port, core, ports, options or {}) end)
end

---@param options? {logs: boolean}
function M.haproxy(core, ports, options)
  return start_on_some_port(function(port) return haproxy_on(port, core, ports, options or {}) end)
end

---Passes bytes on and does nothing else.
function M.relay(core, ports)
  local pid = bench.start(core, { bench.build .. "/bench_relay", unpack(ports) })
  return pid, tonumber((bench.await_output(pid, "port (%d+)\n")))
end

---The light backend on so many ports of one core.
function M.backend(core, count, arguments)
  local argv = { bench.build .. "/bench_backend" }
  for i = 1, count do argv[i + 1] = "0" end
  for _, argument in ipairs(arguments or {}) do argv[#argv + 1] = argument end
  local pid = bench.start(core, argv)
  bench.await_output(pid, "(ready)\n")
  local ports = {}
  for port in bench.output(pid):gmatch("port (%d+)\n") do ports[#ports + 1] = tonumber(port) end
  return pid, ports
end

return M
