/* Sends chat requests at a fixed rate over kept connections, and says how it went. The rate is kept
 * whatever happens: a request that finds no idle connection opens one. Bodies are made before the
 * run; each is a conversation's prompt of --bytes, the first half of it shared by --share requests.
 *
 *   bench_client PORT --rate R --seconds S [--bytes B] [--bodies N] [--stream]
 *
 * Prints one line: sent, answered, failed, late (p99, us), latency (p50, p99, us). */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include "histogram.h"
#include "rng.h"

#define FDS_MAX  65536
#define IDLE_MAX 4096

static struct {
    uint16_t port;
    double rate, seconds;
    size_t bytes;
    uint32_t bodies;
} options = {.rate = 2000, .seconds = 5, .bytes = 8192, .bodies = 4096};

struct connection {
    uint64_t sent_ns;
    size_t left; /* of the answer's body; 0: head not seen */
    bool in_body, busy;
    size_t unsent_from; /* of the request, when the socket was full */
    uint32_t body;
};

static struct connection connections[FDS_MAX];
static int idle[IDLE_MAX];
static uint32_t idle_count, busy_count;
static char **requests;
static size_t *request_lens;
static int epoll_fd;
static uint64_t sent, answered, failed;
static struct kvr_histogram latency_us, late_us;

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* English-like text: words of a small vocabulary, by a seed. */
static void fill_text(char *to, size_t len, uint64_t seed)
{
    static const char *const words[] = {"the ",  "router ", "keeps ", "prompt ", "cache ", "of ",
                                        "a ",    "warm ",   "card ",  "and ",    "sends ", "next ",
                                        "turn ", "to ",     "it ",    "again. "};
    struct kvr_rng rng;
    kvr_rng_init(&rng, seed);
    size_t at = 0;
    while (at < len) {
        const char *word = words[kvr_rng_below(&rng, 16)];
        size_t n = strlen(word) < len - at ? strlen(word) : len - at;
        memcpy(to + at, word, n);
        at += n;
    }
}

static void make_bodies(void)
{
    requests = calloc(options.bodies, sizeof *requests);
    request_lens = calloc(options.bodies, sizeof *request_lens);
    char *text = malloc(options.bytes + 1);
    if (!requests || !request_lens || !text)
        abort();
    text[options.bytes] = '\0';
    for (uint32_t i = 0; i < options.bodies; i++) {
        fill_text(text, options.bytes / 2, 1000 + i / 4);
        fill_text(text + options.bytes / 2, options.bytes - options.bytes / 2, 5000000 + i);
        size_t room = options.bytes + 1024;
        requests[i] = malloc(room);
        char *body = malloc(room);
        if (!requests[i] || !body)
            abort();
        int body_len = snprintf(body, room,
                                "{\"model\":\"bench\",\"messages\":[{\"role\":\"user\",\"content\":"
                                "\"%s\"}],\"max_tokens\":8}",
                                text);
        request_lens[i] = (size_t)snprintf(requests[i], room,
                                           "POST /v1/chat/completions HTTP/1.1\r\nHost: "
                                           "bench\r\nContent-Type: application/json\r\n"
                                           "X-Session-Id: s%u\r\nContent-Length: %d\r\n\r\n%s",
                                           i, body_len, body);
        free(body);
    }
    free(text);
}

static int connect_new(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons(options.port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || fd >= FDS_MAX || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        fprintf(stderr, "bench_client: cannot connect: %s\n", strerror(errno));
        exit(1);
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    connections[fd] = (struct connection){0};
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

static void send_one(uint64_t due_ns)
{
    int fd = idle_count ? idle[--idle_count] : connect_new();
    struct connection *connection = &connections[fd];
    uint32_t body = (uint32_t)(sent % options.bodies);
    *connection = (struct connection){.busy = true, .sent_ns = now_ns(), .body = body};
    kvr_histogram_add(&late_us, (connection->sent_ns - due_ns) / 1000);
    /* Blocking sockets: the whole request goes out in one call on loopback. */
    if (send(fd, requests[body], request_lens[body], MSG_NOSIGNAL) != (ssize_t)request_lens[body])
        failed++;
    sent++;
    busy_count++;
}

static void finish(int fd, bool good)
{
    struct connection *connection = &connections[fd];
    if (connection->busy) {
        busy_count--;
        connection->busy = false;
    }
    if (good) {
        answered++;
        kvr_histogram_add(&latency_us, (now_ns() - connection->sent_ns) / 1000);
        if (idle_count < IDLE_MAX)
            idle[idle_count++] = fd;
        return;
    }
    failed++;
    close(fd);
}

static void on_readable(int fd)
{
    static char buffer[1 << 16];
    struct connection *connection = &connections[fd];
    ssize_t n = recv(fd, buffer, sizeof buffer - 1, MSG_DONTWAIT);
    if (n <= 0) {
        if (n == 0 || errno != EAGAIN)
            finish(fd, false);
        return;
    }
    size_t body = (size_t)n;
    if (!connection->in_body) {
        buffer[n] = '\0';
        char *end = strstr(buffer, "\r\n\r\n");
        char *length = strcasestr(buffer, "content-length:");
        if (!end || !length || strncmp(buffer, "HTTP/1.1 200", 12) != 0) {
            finish(fd, false);
            return;
        }
        connection->in_body = true;
        connection->left = strtoul(length + 15, NULL, 10);
        body = (size_t)(buffer + n - end - 4);
    }
    connection->left -= body < connection->left ? body : connection->left;
    if (connection->left == 0)
        finish(fd, true);
}

static void read_options(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--rate") == 0)
            options.rate = strtod(value, NULL), i++;
        else if (strcmp(argv[i], "--seconds") == 0)
            options.seconds = strtod(value, NULL), i++;
        else if (strcmp(argv[i], "--bytes") == 0)
            options.bytes = strtoul(value, NULL, 10), i++;
        else if (strcmp(argv[i], "--bodies") == 0)
            options.bodies = (uint32_t)strtoul(value, NULL, 10), i++;
        else
            options.port = (uint16_t)atoi(argv[i]);
    }
}

int main(int argc, char **argv)
{
    read_options(argc, argv);
    epoll_fd = epoll_create1(0);
    make_bodies();
    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.fd = timer};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, timer, &event);
    uint64_t start = now_ns(), scheduled = 0;
    uint64_t total = (uint64_t)(options.rate * options.seconds);
    while (answered + failed < total &&
           now_ns() - start < (uint64_t)((options.seconds + 5) * 1e9)) {
        uint64_t due = start + (uint64_t)((double)scheduled / options.rate * 1e9);
        uint64_t now = now_ns();
        while (scheduled < total && due <= now) {
            send_one(due);
            due = start + (uint64_t)((double)++scheduled / options.rate * 1e9);
        }
        struct itimerspec at = {.it_value = {.tv_sec = (time_t)(due / 1000000000u),
                                             .tv_nsec = (long)(due % 1000000000u)}};
        timerfd_settime(timer, TFD_TIMER_ABSTIME, &at, NULL);
        struct epoll_event ready[256];
        int n = epoll_wait(epoll_fd, ready, 256, 100);
        for (int i = 0; i < n; i++) {
            uint64_t expired;
            if (ready[i].data.fd != timer)
                on_readable(ready[i].data.fd);
            else if (read(timer, &expired, sizeof expired) < 0)
                continue;
        }
    }
    printf("{\"sent\":%llu,\"answered\":%llu,\"failed\":%llu,\"late_p99_us\":%llu,"
           "\"latency_p50_us\":%llu,\"latency_p99_us\":%llu}\n",
           (unsigned long long)sent, (unsigned long long)answered, (unsigned long long)failed,
           (unsigned long long)kvr_histogram_quantile(&late_us, 0.99),
           (unsigned long long)kvr_histogram_quantile(&latency_us, 0.5),
           (unsigned long long)kvr_histogram_quantile(&latency_us, 0.99));
    return failed || answered != total;
}
