/* Clients that behave as clients of the world do: they give up in every phase, by FIN and by RST,
 * send in pieces, pipeline, read slowly, vanish. What each request does is drawn from the seed and
 * its number alone, so the same numbers do the same in every run; what becomes of it is told.
 *
 *   bench_chaos PORT [--requests N] [--concurrency N] [--seed N] [--abort SHARE] [--hostile]
 *               [--bytes N] [--longs SHARE] [--seconds S] [--hold S] [--out FILE]
 *
 * FILE has a line a request: its x-request-id, the phase in which it was to give up (`never`), what
 * it saw (`whole`, `cut` in the middle of an answer, `none` of it, `aborted` by itself,
 * `unfinished` when the time was over) and the answer's status (0: no head). The last line of
 * standard output is a JSON object of the sums.
 *
 * `--hostile`: instead, each client stops reading, vanishes in its request, or trickles it in, and
 * holds its connection for --hold seconds; prompts of those that stop reading say HUGE, so that a
 * replica can be told to answer them at length. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "answer_reader.h"
#include "chaos_plan.h"

#define LANES_MAX 1024
#define MS        1000000u
#define STUCK_NS  (20000ull * MS)
#define SOURCES   8 /* addresses 127.0.1.x that connections come from: more ports */

enum verdict { WHOLE, CUT, NONE, ABORTED, UNFINISHED, VERDICTS };
static const char *const verdict_names[VERDICTS] = {"whole", "cut", "none", "aborted",
                                                    "unfinished"};

struct lane {
    int fd; /* -1: none */
    struct chaos_plan plan;
    size_t sent, limit; /* limit: where the next pause, or the end, is */
    uint64_t wake_ns;   /* 0: not waiting */
    uint64_t since_ns;
    struct answer answer;
    bool abort_due, deaf;
};

static struct chaos_options options = {
    .requests = 1000, .seed = 1, .abort = 0.5, .bytes = 600, .longs = 0.02};
static uint16_t port;
static unsigned concurrency = 32;
static double seconds_max = 120, hold_s = 5;
static FILE *out;
static struct lane lanes[LANES_MAX];
static int epoll_fd;
static uint64_t taken, ended, verdicts[VERDICTS], aborted[PHASES], statuses[1000];
static uint64_t broken, misdirected, connect_failed;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static size_t smaller(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- connections ---- */

static void watch(struct lane *lane, uint32_t events)
{
    struct epoll_event event = {.events = events, .data.ptr = lane};
    if (epoll_ctl(epoll_fd, EPOLL_CTL_MOD, lane->fd, &event) != 0)
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, lane->fd, &event);
}

static bool open_connection(struct lane *lane)
{
    unsigned source = (unsigned)(lane - lanes) % SOURCES;
    struct sockaddr_in from = {.sin_family = AF_INET,
                               .sin_addr.s_addr = htonl(0x7f000101u + source)};
    struct sockaddr_in to = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    lane->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (lane->fd < 0)
        return false;
    setsockopt(lane->fd, IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &(int){1}, sizeof(int));
    if (options.hostile)
        setsockopt(lane->fd, SOL_SOCKET, SO_RCVBUF, &(int){16384}, sizeof(int));
    if (bind(lane->fd, (struct sockaddr *)&from, sizeof from) == 0 &&
        (connect(lane->fd, (struct sockaddr *)&to, sizeof to) == 0 || errno == EINPROGRESS)) {
        watch(lane, EPOLLOUT);
        return true;
    }
    close(lane->fd);
    lane->fd = -1;
    return false;
}

static void hang_up(struct lane *lane, bool reset)
{
    if (lane->fd < 0)
        return;
    if (reset)
        setsockopt(lane->fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
    close(lane->fd);
    lane->fd = -1;
}

/* ---- verdicts ---- */

static void conclude(struct lane *lane, enum verdict verdict)
{
    struct request *request = &lane->plan.requests[0];
    int status = lane->answer.headed ? lane->answer.status : 0;
    if (out)
        fprintf(out, "c%llu-%llu %s %s %d\n", (unsigned long long)options.seed,
                (unsigned long long)request->number, phase_names[request->phase],
                verdict_names[verdict], status);
    verdicts[verdict]++;
    aborted[request->phase] += verdict == ABORTED;
    statuses[status] += verdict == WHOLE;
    ended++;
    memmove(request, request + 1, --lane->plan.count * sizeof *request);
    answer_begin(&lane->answer);
}

/* The connection is over, and with it whatever was still to come. */
static void conclude_all(struct lane *lane, enum verdict verdict)
{
    while (lane->plan.count) {
        bool headed = lane->answer.headed;
        conclude(lane, verdict == CUT && !headed ? NONE : verdict);
    }
    lane->wake_ns = 0;
}

static void give_up(struct lane *lane)
{
    hang_up(lane, chaos_chance(&lane->plan, 0.5));
    conclude_all(lane, ABORTED);
}

static enum phase last_phase(const struct lane *lane)
{
    return lane->plan.requests[lane->plan.count - 1].phase;
}

/* ---- what happens ---- */

/* All of it is out that ever will be. */
static void sent_all(struct lane *lane)
{
    enum phase phase = last_phase(lane);
    watch(lane, EPOLLIN);
    if (phase == VANISHES || phase == STOPS_READING) {
        lane->deaf = phase == VANISHES;
        lane->wake_ns = now_ns() + (uint64_t)(hold_s * 1e9);
        lane->abort_due = true;
        if (lane->deaf)
            watch(lane, 0);
    } else if (phase <= REQUEST_SENT) {
        lane->abort_due = true;
        lane->wake_ns = now_ns() + kvr_rng_below(&lane->plan.rng, 3 * MS);
    }
}

static void send_more(struct lane *lane)
{
    while (lane->sent < lane->limit) {
        ssize_t n =
            send(lane->fd, lane->plan.text + lane->sent, lane->limit - lane->sent, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            watch(lane, EPOLLOUT | EPOLLIN);
            return;
        }
        if (n < 0) {
            hang_up(lane, false);
            conclude_all(lane, CUT);
            return;
        }
        lane->sent += (size_t)n;
    }
    if (lane->sent == lane->plan.stop) {
        sent_all(lane);
        return;
    }
    watch(lane, EPOLLIN);
    lane->limit = smaller(lane->limit + lane->plan.step, lane->plan.stop);
    lane->wake_ns = now_ns() + (last_phase(lane) == TRICKLES ? 50 : 2) * MS;
}

static void take(struct lane *lane, const char *data, size_t len)
{
    while (len && lane->plan.count) {
        struct answer *answer = &lane->answer;
        size_t used = answer_feed(answer, data, len);
        data += used;
        len -= used;
        char id[64];
        snprintf(id, sizeof id, "c%llu-%llu", (unsigned long long)options.seed,
                 (unsigned long long)lane->plan.requests[0].number);
        if (answer->headed && answer->id[0] && strcmp(answer->id, id) != 0)
            misdirected++;
        if (answer->state == ANSWER_BROKEN) {
            broken++;
            hang_up(lane, true);
            conclude_all(lane, CUT);
            return;
        }
        enum phase phase = lane->plan.requests[0].phase;
        if (phase == FIRST_BYTE || (phase == MIDWAY && answer->body_bytes >= lane->plan.enough)) {
            give_up(lane);
            return;
        }
        if (phase == STOPS_READING && answer->body_bytes > 1000)
            watch(lane, 0);
        if (answer->state != ANSWER_DONE)
            continue;
        bool over = answer->close;
        conclude(lane, WHOLE);
        if (over) {
            hang_up(lane, false);
            conclude_all(lane, CUT);
            return;
        }
    }
    if (len && lane->plan.count == 0)
        broken++; /* more than was asked for */
    if (lane->plan.count == 0) {
        lane->wake_ns = 0;
        lane->abort_due = false;
        if (!lane->plan.keep)
            hang_up(lane, false);
    }
}

static void on_readable(struct lane *lane)
{
    static char buffer[65536];
    ssize_t n = recv(lane->fd, buffer, last_phase(lane) == STOPS_READING ? 1000 : sizeof buffer, 0);
    if (n > 0) {
        take(lane, buffer, (size_t)n);
        return;
    }
    if (n < 0 && errno == EAGAIN)
        return;
    hang_up(lane, false);
    if (answer_closed(&lane->answer, n == 0))
        conclude(lane, WHOLE);
    conclude_all(lane, CUT);
}

static void on_event(struct lane *lane, uint32_t events)
{
    if (lane->fd < 0)
        return;
    if (lane->plan.count == 0) { /* idle: it can only have been closed */
        hang_up(lane, false);
        return;
    }
    if (events & EPOLLOUT)
        send_more(lane);
    if (lane->fd >= 0 && lane->plan.count && !lane->deaf &&
        events & (EPOLLIN | EPOLLHUP | EPOLLERR))
        on_readable(lane);
    else if (lane->fd >= 0 && lane->plan.count && events & (EPOLLHUP | EPOLLERR)) {
        hang_up(lane, false);
        conclude_all(lane, CUT);
    }
}

static void serve(struct lane *lane, uint64_t now, bool over)
{
    if (lane->plan.count && lane->wake_ns && now >= lane->wake_ns) {
        lane->wake_ns = 0;
        if (lane->abort_due)
            give_up(lane);
        else
            send_more(lane);
    }
    if (lane->plan.count && (over || (now - lane->since_ns > STUCK_NS && !options.hostile))) {
        hang_up(lane, true);
        conclude_all(lane, UNFINISHED);
    }
    if (lane->plan.count || over || taken == options.requests)
        return;
    chaos_draw(&lane->plan, &options, &taken);
    lane->sent = 0;
    lane->abort_due = lane->deaf = false;
    lane->limit = smaller(lane->plan.step, lane->plan.stop);
    answer_begin(&lane->answer);
    lane->since_ns = now;
    if (lane->fd >= 0) {
        send_more(lane);
    } else if (!open_connection(lane)) {
        connect_failed++;
        conclude_all(lane, NONE);
    }
}

static bool read_option(const char *name, const char *value)
{
    if (strcmp(name, "--requests") == 0)
        options.requests = strtoull(value, NULL, 10);
    else if (strcmp(name, "--concurrency") == 0)
        concurrency = (unsigned)strtoul(value, NULL, 10);
    else if (strcmp(name, "--seed") == 0)
        options.seed = strtoull(value, NULL, 10);
    else if (strcmp(name, "--abort") == 0)
        options.abort = strtod(value, NULL);
    else if (strcmp(name, "--bytes") == 0)
        options.bytes = strtoul(value, NULL, 10);
    else if (strcmp(name, "--longs") == 0)
        options.longs = strtod(value, NULL);
    else if (strcmp(name, "--seconds") == 0)
        seconds_max = strtod(value, NULL);
    else if (strcmp(name, "--hold") == 0)
        hold_s = strtod(value, NULL);
    else if (strcmp(name, "--out") == 0)
        out = fopen(value, "we");
    else
        return false;
    return true;
}

static void print_sums(double seconds)
{
    printf("{\"requests\":%llu,\"seconds\":%.3f,\"broken\":%llu,\"misdirected\":%llu,"
           "\"connect_failed\":%llu",
           (unsigned long long)ended, seconds, (unsigned long long)broken,
           (unsigned long long)misdirected, (unsigned long long)connect_failed);
    for (int i = 0; i < VERDICTS; i++)
        if (i != ABORTED)
            printf(",\"%s\":%llu", verdict_names[i], (unsigned long long)verdicts[i]);
    printf(",\"aborted\":{");
    for (int i = 0; i < NEVER; i++)
        printf("%s\"%s\":%llu", i ? "," : "", phase_names[i], (unsigned long long)aborted[i]);
    printf("},\"statuses\":{");
    const char *comma = "";
    for (int i = 0; i < 1000; i++)
        if (statuses[i]) {
            printf("%s\"%d\":%llu", comma, i, (unsigned long long)statuses[i]);
            comma = ",";
        }
    printf("}}\n");
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--hostile") == 0)
            options.hostile = true;
        else if (i + 1 < argc && read_option(argv[i], argv[i + 1]))
            i++;
        else
            port = (uint16_t)atoi(argv[i]);
    }
    if (concurrency > LANES_MAX)
        concurrency = LANES_MAX;
    epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    for (unsigned i = 0; i < concurrency; i++)
        lanes[i].fd = -1;
    uint64_t start = now_ns();
    bool over = false;
    while (!over && ended < options.requests) {
        uint64_t now = now_ns();
        over = now - start > (uint64_t)(seconds_max * 1e9);
        for (unsigned i = 0; i < concurrency; i++)
            serve(&lanes[i], now, over);
        struct epoll_event ready[256];
        int n = epoll_wait(epoll_fd, ready, 256, 1);
        for (int i = 0; i < n; i++)
            on_event(ready[i].data.ptr, ready[i].events);
    }
    if (out)
        fclose(out);
    print_sums((double)(now_ns() - start) / 1e9);
    return broken || misdirected || ended < options.requests;
}
