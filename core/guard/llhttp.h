#error "a pure layer includes <llhttp.h>: time, threads, scripts and sockets belong to other layers"
