#error "a pure layer includes <time.h>: time, threads, scripts and sockets belong to other layers"
