/* A whole ingress with one client and two replicas that are ours: the first attempt gets the bytes
 * of the input as its answer, cut as the input says, and an end; a second attempt gets a good
 * answer. Input: one byte of choices, a plan of cuts, the bytes of a replica.
 *
 * The client gets that answer whole and once, if it is whole; or another replica's; or an error; or
 * a connection that breaks, and then what it has is a part of the answer. It never takes a broken
 * answer for a whole one, or sees one more. Afterwards nothing is open and nothing is counted. */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "expected_answer.h"
#include "health.h"
#include "ingress.h"
#include "log.h"
#include "memory.h"
#include "strict_http.h"

enum choices {
    ENDING = 3, /* how the replica ends: one of the below */
    FINISHES = 0,
    RESETS = 1,
    STAYS = 2,
    STAYS_TOO = 3, /* ... and the client leaves */
    HTTP10 = 4,
    HEAD = 8,
    OPAQUE = 16,
    KEEP_ALIVE = 32,
    SLOW_CLIENT = 64, /* reads only at the end */
    BUSY = 128,       /* the loop is */
};

#define REPLICAS    2
#define CONNECTIONS 8 /* of one input, at most */
#define TURNS_MAX   400

static const char good_answer[] = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                  "Content-Length: 4\r\n\r\ngood";

/* A connection that the ingress has made to one of our replicas. */
struct connection {
    int fd; /* -1: none */
    struct kvr_buffer in;
    bool asked; /* it carries the client's request, and not a probe */
    bool ended; /* the ingress has closed it */
};

static struct {
    uv_loop_t uv;
    struct kvr_loop loop;
    struct kvr_ingress ingress;
    int listening[REPLICAS];
    uint32_t slots[REPLICAS];
    struct connection connections[CONNECTIONS];
    struct connection *first; /* with the first attempt; NULL: none yet */
    unsigned attempts;
    bool busy;
} rig;

/* ---- the rig ---- */

static int listen_somewhere(char *address, size_t room)
{
    struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof any;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(fd >= 0 && bind(fd, (struct sockaddr *)&any, sizeof any) == 0);
    FUZZ_CHECK(listen(fd, 64) == 0 && getsockname(fd, (struct sockaddr *)&any, &len) == 0);
    snprintf(address, room, "127.0.0.1:%u", ntohs(any.sin_port));
    return fd;
}

static void start(void)
{
    static bool started;
    if (started)
        return;
    started = true;
    signal(SIGPIPE, SIG_IGN);
    kvr_log_set_level(KVR_LOG_ERROR);
    FUZZ_CHECK(uv_loop_init(&rig.uv) == 0);
    kvr_loop_init(&rig.loop, &rig.uv);
    const uint64_t never_ns = 3600000000000u;
    struct kvr_ingress_options options = {
        .listen = {"127.0.0.1:0"},
        .listen_count = 1,
        .policies_dir = KVR_SOURCE_DIR "/policies",
        .router = {.replicas_max = 4,
                   .requests_max = 64,
                   .moves = 2,
                   .health = {.interval_ns = never_ns, .passes_to_admit = 1}},
        .models = {.interval_ns = never_ns},
        .headers = true,
        .replies = true,
        .stream_buffer_bytes = 64,
        .script_budget_ms = 5000,
    };
    struct kvr_error error = {0};
    kvr_ingress_init(&rig.ingress, &rig.loop, &options);
    FUZZ_CHECK(kvr_ingress_start(&rig.ingress, &error) == 0);
    for (int i = 0; i < REPLICAS; i++) {
        char address[32];
        rig.listening[i] = listen_somewhere(address, sizeof address);
        struct kvr_ingress_replica_spec spec = {
            .url = kvr_slice_of(address), .rank = -1, .any_model = true};
        int slot = kvr_ingress_add_replica(&rig.ingress, &spec, &error);
        FUZZ_CHECK(slot >= 0);
        rig.slots[i] = (uint32_t)slot;
    }
    for (int i = 0; i < CONNECTIONS; i++)
        rig.connections[i].fd = -1;
}

/* Both replicas are there again, whatever the last input has done to them. */
static void bring_up(void)
{
    struct kvr_router *router = &rig.ingress.router;
    for (int i = 0; i < REPLICAS; i++)
        while (!kvr_replica_in_rotation(&router->replicas.slots[rig.slots[i]]))
            kvr_router_probed(router, kvr_loop_now(), rig.slots[i], KVR_PROBE_PASS, false);
}

static void reset_and_close(int fd)
{
    struct linger reset = {1, 0};
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
    close(fd);
}

/* Takes all bytes that are there. False: the other side has closed. */
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

static struct connection *take_connection(int fd)
{
    for (int i = 0; i < CONNECTIONS; i++)
        if (rig.connections[i].fd < 0) {
            rig.connections[i] = (struct connection){.fd = fd};
            return &rig.connections[i];
        }
    FUZZ_CHECK(false); /* more attempts than may be */
    return NULL;
}

static void answer_request(struct connection *connection)
{
    struct strict_message request;
    if (connection->asked ||
        strict_request(&request, kvr_buffer_slice(&connection->in)) != STRICT_OK)
        return;
    bool probe =
        kvr_slice_is(request.target, "/health") ||
        (kvr_slice_is(request.target, "/v1/models") && !kvr_slice_is(request.method, "HEAD"));
    FUZZ_CHECK(request.size == connection->in.len); /* one request, and nothing behind it */
    kvr_buffer_deinit(&request.body);
    if (probe) {
        reset_and_close(connection->fd);
        kvr_buffer_deinit(&connection->in);
        connection->fd = -1;
        return;
    }
    connection->asked = true;
    if (rig.attempts++ == 0)
        rig.first = connection;
    else
        FUZZ_CHECK(send(connection->fd, good_answer, sizeof good_answer - 1, MSG_NOSIGNAL) > 0);
}

/* A few turns of the loop, and of the replicas. */
static void settle(void)
{
    for (int turn = 0; turn < 3; turn++) {
        if (rig.busy)
            rig.loop.served = KVR_LOOP_BUSY; /* as if the turn before had served many sockets */
        uv_run(&rig.uv, UV_RUN_NOWAIT);
        for (int i = 0; i < REPLICAS; i++) {
            int fd = accept4(rig.listening[i], NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0)
                take_connection(fd);
        }
        for (int i = 0; i < CONNECTIONS; i++) {
            struct connection *connection = &rig.connections[i];
            if (connection->fd < 0 || connection->ended)
                continue;
            connection->ended = !drain(connection->fd, &connection->in);
            answer_request(connection);
        }
    }
}

static void close_connections(void)
{
    for (int i = 0; i < CONNECTIONS; i++) {
        struct connection *connection = &rig.connections[i];
        if (connection->fd >= 0)
            reset_and_close(connection->fd);
        kvr_buffer_deinit(&connection->in);
        *connection = (struct connection){.fd = -1};
    }
    rig.first = NULL;
    rig.attempts = 0;
}

/* ---- what must come of it ---- */

/* `ended`: the client's connection was closed by the ingress. `cut`: with a reset, which a socket
 * pair does not show; what lasts until the end of the connection is not whole then. */
static void check_client(const struct kvr_buffer *out, bool ended, bool cut,
                         const struct expected_answer *expected, unsigned choices)
{
    struct strict_message message = {.minor = 0};
    struct kvr_slice bytes = kvr_buffer_slice(out);
    enum strict_verdict verdict = STRICT_MORE;
    if (out->len)
        verdict = strict_response(&message, bytes, choices & HEAD, ended && !cut);
    FUZZ_CHECK(verdict != STRICT_BAD);
    bool left = (choices & ENDING) == STAYS_TOO;
    if (verdict == STRICT_OK) {
        FUZZ_CHECK(message.size == out->len); /* never a second answer */
        struct kvr_slice replica = {NULL, 0}, body = kvr_buffer_slice(&message.body);
        bool ours = strict_find(&message, "x-kvroute-replica", &replica) == 0;
        bool other = !ours && rig.attempts > 1 && message.status == 200 &&
                     (kvr_slice_is(body, "good") || (choices & HEAD));
        bool first = expected->whole && message.status == expected->status &&
                     kvr_slice_equal(body, kvr_buffer_slice(&expected->body));
        FUZZ_CHECK(other || first || (ours && message.status >= 500));
    } else {
        FUZZ_CHECK(ended || left); /* no one is left waiting */
    }
    /* A whole answer arrives, unless the replica was full and another was asked. */
    if (expected->whole && expected->status != 503 && !left)
        FUZZ_CHECK(verdict == STRICT_OK && message.status == expected->status);
    kvr_buffer_deinit(&message.body);
}

/* ---- one request ---- */

static int ask(unsigned choices)
{
    int ends[2];
    FUZZ_CHECK(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
    int room = 2304;
    setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
    struct kvr_listener *listener = &rig.ingress.listeners[0];
    listener->tcp.accepted_fd = ends[1];
    kvr_client_accept(listener, -1);
    char request[512];
    const char *version = choices & HTTP10 ? "HTTP/1.0" : "HTTP/1.1";
    const char *connection = choices & KEEP_ALIVE ? "keep-alive" : "close";
    const char *method = choices & HEAD ? "HEAD" : choices & OPAQUE ? "GET" : "POST";
    static const char body[] =
        "{\"model\":\"m\",\"messages\":[{\"role\":\"user\",\"content\":"
        "\"hello, and so much more that there is at least one whole block of it\"}]}";
    bool opaque = choices & (HEAD | OPAQUE);
    int len = snprintf(request, sizeof request,
                       "%s %s %s\r\nHost: a\r\nConnection: %s\r\nContent-Length: %zu\r\n\r\n%s",
                       method, opaque ? "/other" : "/v1/chat/completions", version, connection,
                       opaque ? 0 : sizeof body - 1, opaque ? "" : body);
    FUZZ_CHECK(send(ends[0], request, (size_t)len, MSG_NOSIGNAL) == len);
    return ends[0];
}

static void send_answer(struct kvr_slice bytes, struct fuzz_cuts cuts, int client, bool slow,
                        struct kvr_buffer *out, bool *ended)
{
    for (size_t at = 0; at < bytes.len && !rig.first->ended;) {
        size_t piece = fuzz_piece(&cuts, bytes.len - at);
        ssize_t sent = send(rig.first->fd, bytes.data + at, piece, MSG_NOSIGNAL);
        if (sent < 0 && errno != EAGAIN)
            break;
        at += sent > 0 ? (size_t)sent : 0;
        settle();
        if (!slow || sent < 0)
            *ended |= !drain(client, out);
    }
}

static void end_answer(unsigned ending)
{
    if (ending == FINISHES)
        shutdown(rig.first->fd, SHUT_WR);
    if (ending == RESETS) {
        reset_and_close(rig.first->fd);
        kvr_buffer_deinit(&rig.first->in);
        rig.first->fd = -1;
    }
}

static void exchange(struct kvr_slice bytes, struct fuzz_cuts cuts, unsigned choices)
{
    struct expected_answer expected =
        expect_answer(bytes, choices & HEAD, (choices & ENDING) == FINISHES);
    if (expected.until_close && expected.body.len == 0 && expected.status < 300)
        expected.whole = false; /* a success without a byte is none */
    struct kvr_buffer out = {0};
    bool ended = false;
    bring_up();
    uint64_t lost = rig.ingress.counters.lost_mid_stream;
    int client = ask(choices);
    for (int i = 0; !rig.first; i++) {
        FUZZ_CHECK(i < TURNS_MAX);
        settle();
    }
    send_answer(bytes, cuts, client, choices & SLOW_CLIENT, &out, &ended);
    unsigned ending = choices & ENDING;
    end_answer(ending);
    /* A replica that holds its connection open and an answer that has no end: until the client has
     * had enough. */
    bool endless = ending >= STAYS && !expected.whole;
    for (int i = 0; kvr_ingress_open(&rig.ingress); i++) {
        settle();
        ended |= !drain(client, &out);
        if (endless && i == 4)
            break;
        FUZZ_CHECK(i < TURNS_MAX);
    }
    settle();
    ended |= !drain(client, &out);
    if (endless && kvr_ingress_open(&rig.ingress))
        choices |= STAYS_TOO; /* so the client leaves */
    close(client);
    for (int i = 0; rig.ingress.listeners[0].connections; i++) {
        FUZZ_CHECK(i < TURNS_MAX);
        settle();
    }
    bool cut = rig.ingress.counters.lost_mid_stream > lost;
    check_client(&out, ended, cut, &expected, choices);
    FUZZ_CHECK(kvr_ingress_open(&rig.ingress) == 0);
    for (int i = 0; i < REPLICAS; i++)
        FUZZ_CHECK(rig.ingress.router.loads[rig.slots[i]].in_flight == 0);
    close_connections();
    for (int i = 0; i < REPLICAS; i++)
        for (int turn = 0; rig.ingress.replicas[rig.slots[i]].pool->count; turn++) {
            FUZZ_CHECK(turn < TURNS_MAX);
            settle();
        }
    close_connections(); /* probes that came meanwhile */
    kvr_buffer_deinit(&out);
    kvr_buffer_deinit(&expected.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    start();
    unsigned choices = fuzz_byte(&input);
    rig.busy = choices & BUSY;
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    char *bytes = fuzz_rest(&input);
    exchange(kvr_slice_make(bytes, input.left), fuzz_whole, choices);
    exchange(kvr_slice_make(bytes, input.left), cuts, choices);
    if (input.left <= 250)
        exchange(kvr_slice_make(bytes, input.left), fuzz_bytewise, choices);
    free(bytes);
    return 0;
}
