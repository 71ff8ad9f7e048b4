/* Probes, scrapes and model lists: a fetch from a server that answers with the bytes of the input.
 * Input: one byte of choices, a plan of cuts, the bytes of a server.
 *
 * A fetch succeeds when the answer is whole and within its bound, and then has its status and body,
 * however the bytes were cut; otherwise it fails, once; nothing is left of it. */
#include "fuzz.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include "expected_answer.h"
#include "fetch.h"

enum choices {
    RESETS = 1, /* ends with a reset instead of an end of file */
    HEAD = 2,
    POST = 4,
    CANCELS = 8,   /* the fetch is given up before the end */
    BAD_PATH = 16, /* a request that cannot be written: nothing is sent */
};

#define BODY_MAX  512
#define TURNS_MAX 400

static struct {
    uv_loop_t uv;
    struct kvr_loop loop;
    int listening;
    struct sockaddr_in address;
} rig;

struct outcome {
    int calls;
    int uv_code;
    uint16_t status;
    struct kvr_buffer body;
};

static void start(void)
{
    static bool started;
    if (started)
        return;
    started = true;
    signal(SIGPIPE, SIG_IGN);
    FUZZ_CHECK(uv_loop_init(&rig.uv) == 0);
    kvr_loop_init(&rig.loop, &rig.uv);
    rig.address = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof rig.address;
    rig.listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    FUZZ_CHECK(bind(rig.listening, (struct sockaddr *)&rig.address, len) == 0);
    FUZZ_CHECK(listen(rig.listening, 16) == 0);
    FUZZ_CHECK(getsockname(rig.listening, (struct sockaddr *)&rig.address, &len) == 0);
}

static void on_done(void *context, const struct kvr_fetch_result *result)
{
    struct outcome *outcome = context;
    outcome->calls++;
    outcome->uv_code = result->uv_code;
    outcome->status = result->status;
    FUZZ_CHECK((result->uv_code == 0) == (result->head != NULL));
    FUZZ_CHECK(!result->connect_failed && !result->own_fault && !result->timed_out);
    if (result->uv_code == 0) {
        FUZZ_CHECK(result->head->status == result->status && result->body.len <= BODY_MAX);
        kvr_buffer_append_slice(&outcome->body, result->body);
    }
}

static void settle(void)
{
    for (int i = 0; i < 3; i++)
        uv_run(&rig.uv, UV_RUN_NOWAIT);
}

/* The request as it arrives, which must be one. */
static void take_request(int fd, unsigned choices)
{
    struct kvr_buffer in = {0};
    struct strict_message request;
    enum strict_verdict verdict = STRICT_MORE;
    for (int i = 0; verdict == STRICT_MORE; i++) {
        char bytes[1024];
        FUZZ_CHECK(i < TURNS_MAX);
        settle();
        ssize_t len = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
        if (len > 0)
            kvr_buffer_append(&in, bytes, (size_t)len);
        verdict = strict_request(&request, kvr_buffer_slice(&in));
        if (verdict == STRICT_MORE)
            kvr_buffer_deinit(&request.body);
    }
    FUZZ_CHECK(verdict == STRICT_OK && request.size == in.len);
    FUZZ_CHECK(kvr_slice_is(request.method, choices & HEAD   ? "HEAD"
                                            : choices & POST ? "POST"
                                                             : "GET"));
    kvr_buffer_deinit(&request.body);
    kvr_buffer_deinit(&in);
}

static void close_socket(int fd, bool reset)
{
    struct linger at_once = {1, 0};
    if (!reset) {
        shutdown(fd, SHUT_WR);
        settle();
    }
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
    close(fd);
}

static void fetch(struct kvr_slice bytes, struct fuzz_cuts cuts, unsigned choices,
                  struct outcome *outcome)
{
    bool post = (choices & POST) && !(choices & HEAD);
    struct kvr_fetch_options options = {
        .address = (const struct sockaddr *)&rig.address,
        .host = kvr_slice_of("server:1"),
        .method = kvr_slice_of(choices & HEAD ? "HEAD"
                               : post         ? "POST"
                                              : ""),
        .path = kvr_slice_of(choices & BAD_PATH ? "/x y"
                             : post             ? "/x?y"
                                                : ""),
        .bearer = kvr_slice_of(post ? "secret" : ""),
        .headers = kvr_slice_of(post ? "A: b\r\n" : ""),
        .body = kvr_slice_of(post ? "hello" : ""),
        .max_bytes = BODY_MAX,
    };
    struct kvr_fetch *fetch = kvr_fetch_start(&rig.loop, &options, outcome, on_done);
    if (choices & BAD_PATH) {
        for (int i = 0; outcome->calls == 0 && i < TURNS_MAX; i++)
            settle();
        FUZZ_CHECK(outcome->calls == 1 && outcome->uv_code == UV_EINVAL);
        settle();
        return;
    }
    int fd = accept4(rig.listening, NULL, NULL, SOCK_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    take_request(fd, choices);
    for (size_t at = 0; at < bytes.len && outcome->calls == 0;) {
        size_t piece = fuzz_piece(&cuts, bytes.len - at);
        ssize_t sent = send(fd, bytes.data + at, piece, MSG_NOSIGNAL);
        if (sent < 0)
            break;
        at += (size_t)sent;
        settle();
    }
    if ((choices & CANCELS) && outcome->calls == 0) {
        kvr_fetch_cancel(fetch);
        close_socket(fd, true);
        settle();
        FUZZ_CHECK(outcome->calls == 0);
        return;
    }
    close_socket(fd, choices & RESETS);
    for (int i = 0; outcome->calls == 0; i++) {
        FUZZ_CHECK(i < TURNS_MAX);
        settle();
    }
    settle();
    FUZZ_CHECK(outcome->calls == 1);
}

static void check(struct kvr_slice bytes, struct fuzz_cuts cuts, unsigned choices)
{
    struct expected_answer expected = expect_answer(bytes, choices & HEAD, !(choices & RESETS));
    struct outcome outcome = {0};
    fetch(bytes, cuts, choices, &outcome);
    if (choices & (CANCELS | BAD_PATH))
        expected.whole = outcome.calls && outcome.uv_code == 0; /* it came before it was given up */
    bool good = expected.whole && expected.body.len <= BODY_MAX;
    FUZZ_CHECK(good == (outcome.calls == 1 && outcome.uv_code == 0));
    if (good) {
        FUZZ_CHECK(outcome.status == expected.status);
        FUZZ_CHECK(
            kvr_slice_equal(kvr_buffer_slice(&outcome.body), kvr_buffer_slice(&expected.body)));
    }
    kvr_buffer_deinit(&outcome.body);
    kvr_buffer_deinit(&expected.body);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    start();
    unsigned choices = fuzz_byte(&input);
    struct fuzz_cuts cuts = fuzz_take_cuts(&input);
    char *bytes = fuzz_rest(&input);
    check(kvr_slice_make(bytes, input.left), fuzz_whole, choices);
    check(kvr_slice_make(bytes, input.left), cuts, choices);
    if (input.left <= 250)
        check(kvr_slice_make(bytes, input.left), fuzz_bytewise, choices);
    free(bytes);
    return 0;
}
