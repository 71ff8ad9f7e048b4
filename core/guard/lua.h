#error "a pure layer includes <lua.h>: time, threads, scripts and sockets belong to other layers"
