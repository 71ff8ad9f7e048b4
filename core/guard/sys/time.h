#error "a pure layer includes <sys/time.h>"
