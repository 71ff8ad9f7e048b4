#error "a pure layer includes <luajit.h>: time, threads, scripts and sockets belong to other layers"
