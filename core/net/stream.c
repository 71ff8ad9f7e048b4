#include "stream.h"

#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>

#include "check.h"
#include "memory.h"

#define READS_MAX 32 /* of one stream before others have their turn */

/* Two buffers: one is with the kernel, the other collects. */
struct kvr_stream_unsent {
    uv_write_t request;
    struct kvr_buffer sending;
    struct kvr_buffer waiting;
    bool in_write;
    bool orphaned; /* the stream has closed; free at the write callback */
};

static void free_unsent(struct kvr_stream_unsent *unsent)
{
    kvr_buffer_deinit(&unsent->sending);
    kvr_buffer_deinit(&unsent->waiting);
    kvr_free(unsent);
}

static void end(struct kvr_stream *stream, int uv_code)
{
    if (stream->read)
        kvr_inbox_serve_one(&stream->loop->inbox, stream); /* it came before the end did */
    if (stream->ended || stream->closing)
        return;
    stream->ended = true;
    stream->events->on_end(stream, uv_code);
}

/* libuv would read by read(2), whose way through the kernel is longer than recv's. Given no memory
 * it does not, and says so at once, each time that the socket is readable: then on_readable reads.
 */
static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *buf)
{
    (void)handle;
    (void)suggested;
    *buf = uv_buf_init(NULL, 0);
}

/* A reset that comes behind a peer's FIN reads as an end of file. For a body that lasts until the
 * connection does, the difference is between whole and lost. */
static int true_end(struct kvr_stream *stream, int uv_code)
{
    int pending = 0;
    socklen_t len = sizeof pending;
    if (uv_code == UV_EOF && getsockopt(stream->fd, SOL_SOCKET, SO_ERROR, &pending, &len) == 0 &&
        pending)
        return uv_translate_sys_error(pending);
    return uv_code;
}

static size_t space(struct kvr_stream *stream, char **memory)
{
    size_t len = stream->events->on_space ? stream->events->on_space(stream, memory) : 0;
    if (len)
        return len;
    *memory = stream->loop->read_buffer;
    return KVR_READ_BUFFER_BYTES;
}

/* What a read returned that brought no bytes. */
static void end_reading(struct kvr_stream *stream, int uv_code)
{
    uv_read_stop((uv_stream_t *)&stream->tcp);
    stream->reading = false;
    end(stream, true_end(stream, uv_code));
}

void kvr_stream_read(struct kvr_stream *stream)
{
    if (stream->read)
        kvr_inbox_serve_one(&stream->loop->inbox, stream);
    /* A read that fills the buffer is followed by another, but others want their turn, too. */
    for (int reads = 0; stream->reading && !stream->closing && reads < READS_MAX; reads++) {
        char *memory = NULL;
        size_t room = space(stream, &memory);
        ssize_t len = recv(stream->fd, memory, room, MSG_DONTWAIT);
        if (len < 0 && errno == EINTR)
            continue;
        if (len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            return;
        if (len <= 0) {
            end_reading(stream, len ? uv_translate_sys_error(errno) : UV_EOF);
            return;
        }
        stream->bytes_in += (uint64_t)len;
        stream->events->on_data(stream, memory, (size_t)len);
        /* Memory of the owner's is as long as what it waits for. */
        if ((size_t)len < room || memory != stream->loop->read_buffer)
            return;
    }
}

void kvr_stream_serve(struct kvr_stream *stream, char *data, size_t len)
{
    stream->read = false;
    if (stream->closing || stream->ended)
        return;
    stream->bytes_in += (uint64_t)len;
    stream->events->on_data(stream, data, len);
    if (len == KVR_INBOX_ROOM)
        kvr_stream_read(stream); /* it may have more */
}

/* Reads into the inbox. False: its owner has memory for what comes. */
static bool read_ahead(struct kvr_stream *stream)
{
    struct kvr_inbox *inbox = &stream->loop->inbox;
    char *memory = NULL;
    if (stream->read)
        return true;                     /* once a turn; the loop will find it readable again */
    char *room = kvr_inbox_space(inbox); /* others may be served here, and have closed this one */
    if (!stream->reading || stream->closing)
        return true;
    if (stream->events->on_space && stream->events->on_space(stream, &memory))
        return false;
    ssize_t len = recv(stream->fd, room, KVR_INBOX_ROOM, MSG_DONTWAIT);
    if (len < 0 && (errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK))
        return true;
    if (len <= 0) {
        end_reading(stream, len ? uv_translate_sys_error(errno) : UV_EOF);
        return true;
    }
    stream->read = true;
    kvr_inbox_put(inbox, stream, (size_t)len);
    return true;
}

static void on_readable(uv_stream_t *handle, ssize_t code, const uv_buf_t *buf)
{
    (void)code;
    (void)buf;
    struct kvr_stream *stream = handle->data;
    kvr_loop_woke(stream->loop);
    if (!stream->loop->busy || !read_ahead(stream))
        kvr_stream_read(stream);
}

void kvr_stream_init(struct kvr_stream *stream, struct kvr_loop *loop,
                     const struct kvr_stream_events *events)
{
    memset(stream, 0, sizeof *stream);
    stream->loop = loop;
    stream->events = events;
    KVR_CHECK(uv_tcp_init(loop->uv, &stream->tcp) == 0);
    stream->tcp.data = stream;
}

void kvr_stream_start(struct kvr_stream *stream)
{
    KVR_CHECK(!stream->reading && !stream->closing);
    KVR_CHECK(uv_fileno((uv_handle_t *)&stream->tcp, &stream->fd) == 0);
    uv_tcp_nodelay(&stream->tcp, 1);
    if (uv_read_start((uv_stream_t *)&stream->tcp, on_alloc, on_readable) == 0)
        stream->reading = true;
}

void kvr_stream_pause(struct kvr_stream *stream)
{
    if (stream->paused || stream->closing)
        return;
    stream->paused = true;
    if (stream->reading)
        uv_read_stop((uv_stream_t *)&stream->tcp);
    stream->reading = false;
}

void kvr_stream_resume(struct kvr_stream *stream)
{
    if (!stream->paused || stream->closing)
        return;
    stream->paused = false;
    if (!stream->ended && uv_read_start((uv_stream_t *)&stream->tcp, on_alloc, on_readable) == 0)
        stream->reading = true;
}

bool kvr_stream_peer_left(const struct kvr_stream *stream)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    return getsockopt(stream->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0 &&
           info.tcpi_state != TCP_ESTABLISHED;
}

static void on_write(uv_write_t *request, int status);

static void send_more(struct kvr_stream *stream)
{
    struct kvr_stream_unsent *unsent = stream->unsent;
    unsent->sending.len = 0;
    struct kvr_buffer swap = unsent->sending;
    unsent->sending = unsent->waiting;
    unsent->waiting = swap;
    uv_buf_t buf = uv_buf_init(unsent->sending.data, (unsigned)unsent->sending.len);
    int rc = uv_write(&unsent->request, (uv_stream_t *)&stream->tcp, &buf, 1, on_write);
    KVR_CHECK(rc == 0);
    unsent->in_write = true;
}

static void on_write(uv_write_t *request, int status)
{
    struct kvr_stream_unsent *unsent = (struct kvr_stream_unsent *)request;
    if (unsent->orphaned) {
        free_unsent(unsent);
        return;
    }
    struct kvr_stream *stream = request->handle->data;
    unsent->in_write = false;
    if (status < 0) {
        unsent->sending.len = unsent->waiting.len = 0;
        end(stream, status);
        return;
    }
    if (unsent->waiting.len) {
        send_more(stream);
        return;
    }
    stream->unsent = NULL;
    free_unsent(unsent);
    if (!stream->closing && stream->events->on_drained)
        stream->events->on_drained(stream);
}

static size_t try_write(struct kvr_stream *stream, const uv_buf_t *bufs, unsigned count)
{
    /* Nothing waits inside libuv, so the socket may be written past it. send is the shortest way
     * through the kernel, sendmsg still shorter than the writev that libuv would use. uv_buf_t is
     * an iovec on Unix. */
    int flags = MSG_DONTWAIT | MSG_NOSIGNAL;
    struct msghdr message = {.msg_iov = (struct iovec *)bufs, .msg_iovlen = count};
    ssize_t sent = count == 1 ? send(stream->fd, bufs->base, bufs->len, flags)
                              : sendmsg(stream->fd, &message, flags);
    /* Any failure but a full socket comes back through uv_write, whose callback ends the stream. */
    return sent > 0 ? (size_t)sent : 0;
}

/* Keeps what the kernel did not take, and waits until it can. */
static void keep_unsent(struct kvr_stream *stream, const uv_buf_t *bufs, unsigned count,
                        size_t sent)
{
    if (!stream->unsent)
        stream->unsent = kvr_alloc_zero(1, sizeof *stream->unsent);
    struct kvr_buffer *waiting = &stream->unsent->waiting;
    for (unsigned i = 0; i < count; i++) {
        size_t skip = sent < bufs[i].len ? sent : bufs[i].len;
        kvr_buffer_append(waiting, bufs[i].base + skip, bufs[i].len - skip);
        sent -= skip;
    }
    if (!stream->unsent->in_write)
        send_more(stream);
}

static size_t total_of(const uv_buf_t *bufs, unsigned count)
{
    size_t total = 0;
    for (unsigned i = 0; i < count; i++)
        total += bufs[i].len;
    return total;
}

void kvr_stream_send(struct kvr_stream *stream, const uv_buf_t *bufs, unsigned count)
{
    if (stream->closing || stream->ended)
        return;
    size_t sent = stream->unsent ? 0 : try_write(stream, bufs, count);
    if (sent < total_of(bufs, count))
        keep_unsent(stream, bufs, count, sent);
    if (stream->events->on_sent)
        stream->events->on_sent(stream);
}

void kvr_stream_write(struct kvr_stream *stream, const uv_buf_t *bufs, unsigned count)
{
    KVR_CHECK(count <= KVR_STREAM_BUFS);
    if (stream->closing || stream->ended)
        return;
    size_t total = total_of(bufs, count);
    stream->bytes_out += total;
    if (stream->boxed)
        kvr_outbox_flush(&stream->loop->outbox); /* its bytes keep their order */
    if (!stream->loop->busy || !kvr_outbox_take(&stream->loop->outbox, stream, bufs, count, total))
        kvr_stream_send(stream, bufs, count);
}

void kvr_stream_flush(struct kvr_stream *stream)
{
    if (stream->boxed)
        kvr_outbox_flush(&stream->loop->outbox);
}

size_t kvr_stream_unsent(const struct kvr_stream *stream)
{
    if (!stream->unsent)
        return 0;
    return stream->unsent->waiting.len +
           uv_stream_get_write_queue_size((const uv_stream_t *)&stream->tcp);
}

static void on_close(uv_handle_t *handle)
{
    struct kvr_stream *stream = handle->data;
    stream->events->on_closed(stream);
}

static void abandon_unsent(struct kvr_stream *stream)
{
    struct kvr_stream_unsent *unsent = stream->unsent;
    stream->unsent = NULL;
    if (!unsent)
        return;
    /* libuv cancels the write while it closes, before on_close. */
    if (unsent->in_write)
        unsent->orphaned = true;
    else
        free_unsent(unsent);
}

void kvr_stream_close(struct kvr_stream *stream)
{
    if (stream->closing)
        return;
    kvr_stream_flush(stream);
    stream->closing = true;
    abandon_unsent(stream);
    uv_close((uv_handle_t *)&stream->tcp, on_close);
}

void kvr_stream_reset(struct kvr_stream *stream)
{
    if (stream->closing)
        return;
    kvr_stream_flush(stream);
    stream->closing = true;
    abandon_unsent(stream);
    if (uv_tcp_close_reset(&stream->tcp, on_close) != 0)
        uv_close((uv_handle_t *)&stream->tcp, on_close);
}
