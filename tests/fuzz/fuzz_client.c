/* A real kvr_client of a real listener, over a socket pair: requests split at any byte, pipelined,
 * answered at once, late, in pieces, or never. Input: one byte of manners (from 128 on in a busy
 * loop), a plan of cuts, the bytes of a client.
 *
 * The handler must see the same requests however the bytes were cut and however busy the loop was,
 * and no request after one that was refused; every request gets one answer, in order, readable by a
 * strict reader; and when the connection is over nothing of it is left. */
#include "fuzz.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "listener.h"
#include "strict_http.h"

enum manner {
    AT_ONCE,    /* replies inside on_request */
    LATE,       /* replies after more bytes have come */
    IN_PIECES,  /* start at once, send and finish late */
    LATE_CLOSE, /* relays a whole answer late, and says that the connection must not stay */
    LARGE,      /* late, and more than the socket takes at once */
    ABORT,      /* cuts the client, at once or late */
    VANISH,     /* the client goes away with its request unanswered */
    MANNERS,
    BUSY = 128, /* the loop is, but for the whole input */
};

#define BODY_MAX     512 /* limits within reach of the fuzzer */
#define HEAD_MAX     512
#define BODIES_TOTAL 1400
#define LARGE_BYTES  20000
#define TURNS_MAX    64 /* of the loop, until it has nothing to do */

struct server {
    uv_loop_t uv;
    struct kvr_loop loop;
    uv_check_t between; /* reading and serving, in a busy turn */
    bool busy;
    struct kvr_listener listener;
    enum manner manner;
    struct kvr_client *waiting; /* its request is taken and not answered */
    struct kvr_buffer log;      /* what the handler saw */
    unsigned requests, refusals, answers;
    bool varies;      /* what happened depended on the cuts, as it may */
    bool heads[4096]; /* by request: was it HEAD */
    char large[LARGE_BYTES];
};

static struct server server;

/* Names the request it answers, so that their order can be seen. */
static void answer(struct kvr_client *client)
{
    char body[32];
    int len = snprintf(body, sizeof body, "answer %u", server.answers);
    struct kvr_slice text = kvr_slice_make(body, (size_t)len);
    char whole[160];
    uv_buf_t buf = {whole, 0};
    server.waiting = NULL;
    if (server.manner == ABORT) {
        kvr_client_abort(client);
        return;
    }
    server.answers++;
    switch (server.manner) {
    case IN_PIECES:
        kvr_client_send(client, kvr_slice_make(body, 3));
        kvr_client_send(client, kvr_slice_make(body + 3, text.len - 3));
        kvr_client_finish(client);
        break;
    case LATE_CLOSE:
        buf.len = (size_t)snprintf(whole, sizeof whole,
                                   "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n"
                                   "Connection: close\r\n\r\n%s",
                                   len, client->head_only ? "" : body);
        kvr_client_relay(client, &buf, 1);
        kvr_client_relayed(client, false);
        break;
    case LARGE:
        memcpy(server.large, body, text.len);
        text = kvr_slice_make(server.large, sizeof server.large);
        /* fall through */
    default:
        kvr_client_reply(client, 200, kvr_slice_of(""), kvr_slice_of("text/plain"), text);
    }
}

static void on_request(void *context, struct kvr_client *client, const struct kvr_request *request)
{
    (void)context;
    const struct kvr_http_head *head = request->head;
    FUZZ_CHECK(!server.waiting); /* one at a time */
    FUZZ_CHECK(head->size == request->head_bytes.len);
    FUZZ_CHECK(request->body.data == request->head_bytes.data + head->size);
    FUZZ_CHECK(request->body.len <= BODY_MAX && head->size <= HEAD_MAX);
    FUZZ_CHECK(server.requests < sizeof server.heads);
    fuzz_note_slice(&server.log, "head", request->head_bytes);
    fuzz_note_slice(&server.log, "target", head->target);
    fuzz_note_slice(&server.log, "body", request->body);
    server.heads[server.requests++] = client->head_only;
    if (request->owned && server.requests % 2) { /* moved out, as an exchange does */
        kvr_buffer_deinit(request->owned);
        *request->owned = (struct kvr_buffer){0};
    }
    server.waiting = client;
    if (server.manner == IN_PIECES)
        kvr_client_start(client, 200, kvr_slice_of(""), kvr_slice_of("text/plain"));
    if (server.manner == AT_ONCE || (server.manner == ABORT && request->body.len % 2))
        answer(client);
}

static void on_gone(void *context, struct kvr_client *client)
{
    (void)context;
    FUZZ_CHECK(server.waiting == client);
    server.waiting = NULL;
    kvr_buffer_append_text(&server.log, "gone\n");
}

static void on_refused(void *context, struct kvr_client *client, const struct kvr_http_head *head,
                       enum kvr_refusal refusal)
{
    (void)context;
    (void)client;
    FUZZ_CHECK(!head || (head->method.len && head->path.len));
    /* Of a head that is both too long and malformed, the cuts decide which is seen first. */
    kvr_buffer_append_text(&server.log, "refused\n");
    server.varies |= refusal == KVR_REFUSE_BODIES_TOTAL;
    server.refusals++;
}

/* Runs before the loop's own, which serves what was read: a request may be answered while bytes
 * behind it are in the inbox. */
static void on_between(uv_check_t *check)
{
    (void)check;
    if (server.waiting && server.waiting->stream.read && server.requests % 2 &&
        server.manner != VANISH)
        answer(server.waiting);
}

static void start_server(void)
{
    static bool started;
    if (started)
        return;
    started = true;
    signal(SIGPIPE, SIG_IGN);
    struct kvr_handler handler = {
        .on_request = on_request, .on_gone = on_gone, .on_refused = on_refused};
    struct kvr_listener_options options = {
        .header_bytes_max = HEAD_MAX, .body_bytes_max = BODY_MAX, .bodies_total_max = BODIES_TOTAL};
    struct kvr_error error = {0};
    FUZZ_CHECK(uv_loop_init(&server.uv) == 0);
    kvr_loop_init(&server.loop, &server.uv);
    FUZZ_CHECK(uv_check_init(&server.uv, &server.between) == 0);
    FUZZ_CHECK(uv_check_start(&server.between, on_between) == 0);
    int rc = kvr_listener_start(&server.listener, &server.loop, "127.0.0.1:0", &handler, &options,
                                &error);
    FUZZ_CHECK(rc == 0);
}

static void turn(void)
{
    if (server.busy)
        server.loop.served = KVR_LOOP_BUSY; /* as if the turn before had served many sockets */
    uv_run(&server.uv, UV_RUN_NOWAIT);
}

/* Lets the loop do what there is to do: the pair hands bytes over at once, so a few turns do. */
static void settle(void)
{
    for (int i = 0; i < 4; i++)
        turn();
}

/* A connection as if it had been accepted; returns the client's end. */
static int connect_pair(void)
{
    int ends[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    server.listener.tcp.accepted_fd = ends[1];
    kvr_client_accept(&server.listener, -1);
    FUZZ_CHECK(server.listener.connections == 1);
    int room = 4096;
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    return ends[0];
}

/* Takes all bytes that are there. False: the server has closed. */
static bool drain(int fd, struct kvr_buffer *out)
{
    for (;;) {
        char bytes[4096];
        ssize_t len = recv(fd, bytes, sizeof bytes, 0);
        if (len > 0)
            kvr_buffer_append(out, bytes, (size_t)len);
        else
            return len < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
    }
}

/* The same until nothing more comes. */
static bool receive(int fd, struct kvr_buffer *out)
{
    size_t before;
    bool open;
    do {
        before = out->len;
        settle();
        open = drain(fd, out);
    } while (open && out->len > before);
    return open;
}

/* Every request has its answer, in order, and nothing stands between them. */
static void check_answers(const struct kvr_buffer *out)
{
    size_t at = 0;
    unsigned answers = 0, errors = 0;
    while (at < out->len) {
        struct strict_message message;
        struct kvr_slice rest = kvr_slice_make(out->data + at, out->len - at);
        bool head = answers < server.requests && server.heads[answers];
        enum strict_verdict verdict = strict_response(&message, rest, head, true);
        FUZZ_CHECK(verdict == STRICT_OK);
        FUZZ_CHECK(errors == 0); /* an error is the last word */
        char expected[32];
        int len = snprintf(expected, sizeof expected, "answer %u", answers);
        if (message.status == 200) {
            size_t wanted = server.manner == LARGE ? LARGE_BYTES : (size_t)len;
            FUZZ_CHECK(message.body.len == (head ? 0 : wanted));
            FUZZ_CHECK(head || memcmp(message.body.data, expected, (size_t)len) == 0);
            answers++;
        } else if (message.status != 100) {
            errors++;
        }
        at += message.size;
        kvr_buffer_deinit(&message.body);
    }
    FUZZ_CHECK(answers == server.answers && errors == server.refusals);
    FUZZ_CHECK(server.refusals <= 1);
}

static struct kvr_buffer talk(const char *data, size_t len, struct fuzz_cuts cuts, bool busy)
{
    struct kvr_buffer out = {0};
    server.busy = busy;
    server.log = (struct kvr_buffer){0};
    server.requests = server.refusals = server.answers = 0;
    server.waiting = NULL;
    int fd = connect_pair();
    bool open = true;
    for (size_t at = 0; at < len && open;) {
        size_t piece = fuzz_piece(&cuts, len - at);
        ssize_t sent = send(fd, data + at, piece, MSG_NOSIGNAL);
        if (sent > 0)
            at += (size_t)sent;
        open = receive(fd, &out);
        if (server.waiting && at % 2 && server.manner != VANISH)
            answer(server.waiting);
    }
    /* What was left waiting is answered; each answer may bring the next request. */
    for (int i = 0; server.waiting && server.manner != VANISH; i++) {
        FUZZ_CHECK(i < (int)sizeof server.heads);
        answer(server.waiting);
        receive(fd, &out);
    }
    receive(fd, &out);
    close(fd);
    /* One that has sent too much ahead is not read until its request is answered: that it is gone
     * shows only then. */
    for (int i = 0; server.waiting && server.waiting->stream.paused; i++) {
        FUZZ_CHECK(i < TURNS_MAX);
        server.varies = true;
        answer(server.waiting);
        settle();
    }
    for (int i = 0; server.listener.connections; i++) {
        FUZZ_CHECK(i < TURNS_MAX);
        turn();
    }
    FUZZ_CHECK(server.listener.held_bytes == 0);
    FUZZ_CHECK(!server.waiting);
    if (server.manner != ABORT && server.manner != VANISH)
        check_answers(&out);
    kvr_buffer_deinit(&out);
    return server.log;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    start_server();
    unsigned choices = fuzz_byte(&input);
    bool busy = choices & BUSY;
    server.manner = (enum manner)(choices % BUSY % MANNERS);
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    server.varies = false;
    char *bytes = fuzz_rest(&input);
    struct kvr_buffer whole = talk(bytes, input.left, fuzz_whole, false);
    struct kvr_buffer cut = talk(bytes, input.left, cuts, busy);
    if (!server.varies)
        fuzz_same(&whole, &cut);
    if (input.left <= 400) {
        struct kvr_buffer bytewise = talk(bytes, input.left, fuzz_bytewise, busy);
        if (!server.varies)
            fuzz_same(&whole, &bytewise);
        kvr_buffer_deinit(&bytewise);
    }
    kvr_buffer_deinit(&whole);
    kvr_buffer_deinit(&cut);
    free(bytes);
    return 0;
}
