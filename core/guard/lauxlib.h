#error "a pure layer includes <lauxlib.h>: time, threads, scripts and sockets belong to other layers"
