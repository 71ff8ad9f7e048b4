#error "a pure layer includes <sys/random.h>"
