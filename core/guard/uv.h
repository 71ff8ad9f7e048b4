#error "a pure layer includes <uv.h>: time, threads, scripts and sockets belong to other layers"
