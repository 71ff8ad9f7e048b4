/* cmocka with what it needs before it, and an assertion for bugs that must end the process. */
#ifndef KVR_UNIT_H
#define KVR_UNIT_H

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* Runs the statement in a child: it must end by abort(), as a failed KVR_CHECK does. */
#define assert_dies(statement)                                                                     \
    do {                                                                                           \
        fflush(NULL);                                                                              \
        pid_t child_ = fork();                                                                     \
        assert_true(child_ >= 0);                                                                  \
        if (child_ == 0) {                                                                         \
            if (!freopen("/dev/null", "w", stderr))                                                \
                _exit(3);                                                                          \
            statement;                                                                             \
            _exit(0);                                                                              \
        }                                                                                          \
        int status_ = 0;                                                                           \
        assert_int_equal(waitpid(child_, &status_, 0), child_);                                    \
        assert_true(WIFSIGNALED(status_) && WTERMSIG(status_) == SIGABRT);                         \
    } while (0)

#endif
