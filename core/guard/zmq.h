#error "a pure layer includes <zmq.h>: time, threads, scripts and sockets belong to other layers"
