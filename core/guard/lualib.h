#error "a pure layer includes <lualib.h>: time, threads, scripts and sockets belong to other layers"
