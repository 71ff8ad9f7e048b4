/* Bugs, as against the world's failures: a router with a broken ledger must die, not misroute.
 *
 * KVR_CHECK stays on in release builds. Failures of the world (a peer, a file, a script) are
 * negative integers from error.h and never come through here. */
#ifndef KVR_CHECK_H
#define KVR_CHECK_H

/* Writes file, line and the broken condition to stderr and aborts. */
_Noreturn void kvr_check_failed(const char *file, int line, const char *condition);

#define KVR_CHECK(condition)                                                                       \
    ((condition) ? (void)0 : kvr_check_failed(__FILE__, __LINE__, #condition))

#define KVR_MUST_USE          __attribute__((warn_unused_result))
#define KVR_EXPORT            __attribute__((visibility("default")))
#define KVR_PRINTF(at, first) __attribute__((format(printf, at, first)))

#endif
