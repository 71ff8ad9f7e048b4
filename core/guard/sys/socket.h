#error "a pure layer includes <sys/socket.h>"
