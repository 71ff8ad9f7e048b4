#error "a pure layer includes <pthread.h>: time, threads, scripts and sockets belong to other layers"
