#include "signals.h"

#include <signal.h>

#include "check.h"

/* Never closed: with a signal's last handle libuv gives it back its default action, and one that
 * comes just then ends the process in the middle of an orderly end. */
static uv_signal_t handles[3];
static struct kvr_signals_handler handler;

static void on_signal(uv_signal_t *handle, int number)
{
    (void)handle;
    if (number == SIGHUP)
        handler.on_hangup(handler.context);
    else
        handler.on_end(handler.context, number);
}

void kvr_signals_watch(uv_loop_t *uv, const struct kvr_signals_handler *given)
{
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    KVR_CHECK(!handler.on_end && given->on_end);
    handler = *given;
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        if (numbers[i] == SIGHUP && !handler.on_hangup)
            continue;
        KVR_CHECK(uv_signal_init(uv, &handles[i]) == 0);
        KVR_CHECK(uv_signal_start(&handles[i], on_signal, numbers[i]) == 0);
        uv_unref((uv_handle_t *)&handles[i]);
    }
}

void kvr_signals_leave(void)
{
    for (size_t i = 0; i < sizeof handles / sizeof handles[0]; i++)
        if (handles[i].signum)
            signal(handles[i].signum, SIG_IGN);
}
