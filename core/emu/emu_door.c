#include "emu_door.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "check.h"
#include "log.h"
#include "memory.h"

#define REAP_MS  100.0
#define RETRY_MS 50.0

static void retire(struct kvr_emu_door *door, struct kvr_listener *listener, bool closing)
{
    KVR_CHECK(door->retired_len < KVR_EMU_RETIRED_MAX);
    door->retired[door->retired_len++] = (struct kvr_emu_retired){listener, closing};
    kvr_emu_delay_start(door->delays, &door->reaping, REAP_MS);
}

/* A listener goes in two looks: its handles close once its clients have left, and its memory may go
 * only when the loop has turned after that. */
static void on_reap(struct kvr_emu_delay *delay)
{
    struct kvr_emu_door *door = KVR_LIST_ENTRY(delay, struct kvr_emu_door, reaping);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < door->retired_len; i++) {
        struct kvr_emu_retired retired = door->retired[i];
        if (retired.closing && kvr_listener_closed(retired.listener)) {
            kvr_free(retired.listener);
            continue;
        }
        if (!retired.closing && kvr_listener_closed(retired.listener)) {
            kvr_listener_close(retired.listener);
            retired.closing = true;
        }
        door->retired[kept++] = retired;
    }
    door->retired_len = kept;
    if (kept)
        kvr_emu_delay_start(door->delays, &door->reaping, REAP_MS);
}

/* A loopback connection has no path whose capacity could be learned. What the system uses to learn
 * it models and paces one all the same (bbr: 4 % of what a token costs), so local clients'
 * connections get the plainest there is. That it could not be had is no failure. */
static void expect_no_congestion(const struct kvr_listener *listener)
{
    static const char plainest[] = "reno";
    int fd;
    if (strncmp(listener->address, "127.", 4) == 0 &&
        uv_fileno((const uv_handle_t *)&listener->tcp, &fd) == 0)
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, plainest, sizeof plainest - 1);
}

static int listen_at(struct kvr_emu_door *door, const char *address, struct kvr_error *error)
{
    struct kvr_listener *listener = kvr_alloc_zero(1, sizeof *listener);
    int code =
        kvr_listener_start(listener, door->loop, address, &door->handler, &door->options, error);
    if (code == KVR_E_INVALID)
        kvr_free(listener); /* the address could not be read: there is no handle yet */
    else if (code)
        retire(door, listener, true);
    else
        door->listener = listener;
    if (code == 0)
        expect_no_congestion(listener);
    return code;
}

void kvr_emu_door_open(struct kvr_emu_door *door)
{
    struct kvr_error error;
    kvr_emu_delay_stop(&door->opening);
    if (door->listener)
        return;
    if (door->retired_len == KVR_EMU_RETIRED_MAX || listen_at(door, door->address, &error) != 0)
        kvr_emu_delay_start(door->delays, &door->opening, RETRY_MS);
}

static void on_open(struct kvr_emu_delay *delay)
{
    kvr_emu_door_open(KVR_LIST_ENTRY(delay, struct kvr_emu_door, opening));
}

int kvr_emu_door_init(struct kvr_emu_door *door, struct kvr_loop *loop,
                      struct kvr_emu_delays *delays, const char *address,
                      const struct kvr_handler *handler, const struct kvr_listener_options *options,
                      struct kvr_error *error)
{
    *door = (struct kvr_emu_door){
        .loop = loop, .delays = delays, .handler = *handler, .options = *options};
    kvr_emu_delay_init(&door->opening, on_open);
    kvr_emu_delay_init(&door->reaping, on_reap);
    int code = listen_at(door, address, error);
    if (code == 0)
        memcpy(door->address, door->listener->address, sizeof door->address);
    return code;
}

int kvr_emu_door_shut(struct kvr_emu_door *door, bool cut, double ms, struct kvr_error *error)
{
    if (door->listener && door->retired_len == KVR_EMU_RETIRED_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "%d earlier listeners still have clients",
                             KVR_EMU_RETIRED_MAX);
    if (door->listener) {
        struct kvr_listener *listener = door->listener;
        door->listener = NULL;
        if (cut)
            kvr_listener_close(listener);
        else
            kvr_listener_stop(listener);
        retire(door, listener, cut);
    }
    if (ms >= 0)
        kvr_emu_delay_start(door->delays, &door->opening, ms);
    else
        kvr_emu_delay_stop(&door->opening);
    return 0;
}

void kvr_emu_door_close(struct kvr_emu_door *door)
{
    kvr_emu_delay_stop(&door->opening);
    kvr_emu_delay_stop(&door->reaping);
    if (door->listener)
        kvr_listener_close(door->listener);
    for (uint32_t i = 0; i < door->retired_len; i++)
        if (!door->retired[i].closing)
            kvr_listener_close(door->retired[i].listener);
}

void kvr_emu_door_deinit(struct kvr_emu_door *door)
{
    if (!door->loop)
        return; /* it was never hung */
    kvr_emu_delay_stop(&door->opening);
    kvr_emu_delay_stop(&door->reaping);
    kvr_free(door->listener);
    for (uint32_t i = 0; i < door->retired_len; i++)
        kvr_free(door->retired[i].listener);
    door->listener = NULL;
    door->retired_len = 0;
}
