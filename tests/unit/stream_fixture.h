/* Streams of one loop, their owners, and the peers at their other ends, which are plain
 * descriptors. All of them are written to, then the loop makes one busy turn, which finds them
 * readable in that order. */
#ifndef STREAM_FIXTURE_H
#define STREAM_FIXTURE_H

#include "net_fixture.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "stream.h"

#define OWNERS_MAX 80

struct owner {
    struct kvr_stream stream;
    struct rig *rig;
    int peer;
    struct kvr_buffer got;
    struct kvr_buffer sent; /* by the peer; or to it, where a test is about writing */
    size_t compared;        /* bytes of `got`, by assert_prefix */
    size_t pieces;          /* calls of on_data */
    int end_code;           /* 0: open */
    bool closed;
    char *own;    /* memory for its next bytes, or NULL */
    size_t room;  /* there */
    size_t owned; /* bytes that came there */
    void (*on_data)(struct owner *owner);
};

struct rig {
    struct net_fixture net;
    struct owner owners[OWNERS_MAX];
    int count;
    char order[64]; /* who was given data, as letters: owner 0 is 'a' */
    size_t len;
};

static inline struct owner *owner_of(struct kvr_stream *stream)
{
    return KVR_LIST_ENTRY(stream, struct owner, stream);
}

static inline size_t rig_on_space(struct kvr_stream *stream, char **memory)
{
    struct owner *owner = owner_of(stream);
    assert_false(stream->closing);
    *memory = owner->own;
    return owner->own ? owner->room : 0;
}

static inline void rig_on_data(struct kvr_stream *stream, char *data, size_t len)
{
    struct owner *owner = owner_of(stream);
    struct rig *rig = owner->rig;
    assert_false(stream->closing);
    assert_int_equal(owner->end_code, 0);
    assert_true(len > 0);
    kvr_buffer_append(&owner->got, data, len);
    owner->pieces++;
    if (data == owner->own) {
        owner->owned += len;
        owner->own = NULL;
    }
    if (rig->len + 1 < sizeof rig->order)
        rig->order[rig->len++] = (char)('a' + (owner - rig->owners));
    if (owner->on_data)
        owner->on_data(owner);
}

static inline void rig_on_end(struct kvr_stream *stream, int uv_code)
{
    struct owner *owner = owner_of(stream);
    assert_false(stream->closing);
    assert_int_equal(owner->end_code, 0);
    owner->end_code = uv_code;
    kvr_stream_close(stream);
}

static inline void rig_on_closed(struct kvr_stream *stream)
{
    struct owner *owner = owner_of(stream);
    assert_false(owner->closed);
    owner->closed = true;
}

static const struct kvr_stream_events rig_events = {.on_space = rig_on_space,
                                                    .on_data = rig_on_data,
                                                    .on_end = rig_on_end,
                                                    .on_closed = rig_on_closed};

static inline void adopt(struct rig *rig, int ours, int peer)
{
    assert_true(rig->count < OWNERS_MAX);
    struct owner *owner = &rig->owners[rig->count++];
    owner->rig = rig;
    owner->peer = peer;
    kvr_stream_init(&owner->stream, &rig->net.loop, &rig_events);
    assert_int_equal(uv_tcp_open(&owner->stream.tcp, ours), 0);
    kvr_stream_start(&owner->stream);
}

static inline void busy_turn(struct rig *rig)
{
    net_make_busy(&rig->net.loop);
    uv_run(&rig->net.uv, UV_RUN_NOWAIT);
}

/* Busy turns until it is so. On a machine with much to do loopback may take its time. */
#define run_until(rig, condition)                                                                  \
    do {                                                                                           \
        uint64_t began_ns_ = uv_hrtime();                                                          \
        while (!(condition) && uv_hrtime() - began_ns_ < 10000000000u)                             \
            busy_turn(rig);                                                                        \
        assert_true(condition);                                                                    \
    } while (0)

/* What was sent to it has arrived, or its end. */
static inline void wait_readable(int fd)
{
    struct pollfd look = {.fd = fd, .events = POLLIN};
    assert_int_equal(poll(&look, 1, 10000), 1);
}

static inline struct rig *new_rig(int count)
{
    struct rig *rig = calloc(1, sizeof *rig);
    net_fixture_init(&rig->net);
    for (int i = 0; i < count; i++) {
        int ends[2];
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends),
                         0);
        adopt(rig, ends[0], ends[1]);
    }
    busy_turn(rig); /* from now on they are found in the order in which they become readable */
    return rig;
}

/* A pair over loopback: unlike the others it can be reset, and its buffers are small. */
static inline void add_tcp(struct rig *rig)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof address;
    int room = 4096;
    int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(listening, SOL_SOCKET, SO_RCVBUF, &room, sizeof room);
    assert_int_equal(bind(listening, (struct sockaddr *)&address, sizeof address), 0);
    assert_int_equal(listen(listening, 1), 0);
    assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &len), 0);
    int ours = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(ours, SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    assert_int_equal(connect(ours, (struct sockaddr *)&address, sizeof address), 0);
    int peer = accept4(listening, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    assert_true(peer >= 0);
    close(listening);
    adopt(rig, ours, peer);
}

static inline void end_rig(struct rig *rig)
{
    for (int i = 0; i < rig->count; i++)
        kvr_stream_close(&rig->owners[i].stream);
    for (int i = 0; i < 3; i++)
        busy_turn(rig);
    for (int i = 0; i < rig->count; i++) {
        struct owner *owner = &rig->owners[i];
        assert_true(owner->closed);
        if (owner->peer >= 0)
            close(owner->peer);
        kvr_buffer_deinit(&owner->got);
        kvr_buffer_deinit(&owner->sent);
    }
    net_fixture_deinit(&rig->net);
    free(rig);
}

/* ---- what the peers do ---- */

static inline const char *letters(size_t at, size_t len)
{
    static char text[200000];
    static const size_t round = 26 * 251;
    if (!text[0])
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)('a' + (i + i / 251) % 26);
    assert_true(at % round + len <= sizeof text);
    return text + at % round;
}

/* As much of it as its socket takes. */
static inline void peer_sends(struct owner *owner, size_t len)
{
    const char *bytes = letters(owner->sent.len, len);
    ssize_t sent = send(owner->peer, bytes, len, MSG_NOSIGNAL);
    if (sent > 0)
        kvr_buffer_append(&owner->sent, bytes, (size_t)sent);
}

static inline void peer_says(struct owner *owner, const char *text)
{
    assert_int_equal(send(owner->peer, text, strlen(text), MSG_NOSIGNAL), strlen(text));
    kvr_buffer_append_text(&owner->sent, text);
}

static inline void peer_takes(struct owner *owner, size_t at_most)
{
    char bytes[32768];
    size_t want = at_most < sizeof bytes ? at_most : sizeof bytes;
    ssize_t len = recv(owner->peer, bytes, want, 0);
    if (len > 0)
        kvr_buffer_append(&owner->got, bytes, (size_t)len);
}

static inline void peer_resets(struct owner *owner)
{
    struct linger reset = {1, 0};
    setsockopt(owner->peer, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(owner->peer);
    owner->peer = -1;
}

static inline bool has_all(const struct owner *owner)
{
    return kvr_slice_equal(kvr_buffer_slice(&owner->got), kvr_buffer_slice(&owner->sent));
}

static inline void assert_prefix(struct owner *owner)
{
    assert_true(owner->got.len <= owner->sent.len);
    size_t more = owner->got.len - owner->compared;
    if (more)
        assert_true(memcmp(owner->got.data + owner->compared, owner->sent.data + owner->compared,
                           more) == 0);
    owner->compared = owner->got.len;
}

#endif
