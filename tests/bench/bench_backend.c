/* A replica that costs nothing: answers every POST from memory, over raw epoll, so that a bench of
 * a proxy measures the proxy. One process, any number of ports, one thread.
 *
 *   bench_backend PORT [PORT ...] [--events N] [--pace-us U]
 *
 * --events N: answers are event streams of N events, one write each; --pace-us spaces them.
 * GET /count answers how many POSTs were served, /events how many events were sent; /health and
 * /v1/models answer as an engine does.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
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

#define FDS_MAX 65536

struct connection {
    char *in; /* bytes of an unfinished request; NULL none */
    size_t in_len, in_capacity;
    uint32_t events_left; /* of the stream being answered */
    uint64_t due_ns;      /* when its next event is to go out, if they are paced */
    bool open, listening;
};

static struct connection connections[FDS_MAX];
static int epoll_fd;
static uint64_t served, events_sent;
static uint32_t events_an_answer;
static uint64_t pace_us;
static char answer[1024], event_text[512], stream_head[256];
static size_t answer_len, event_len, stream_head_len;
static const char stream_end[] = "e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n";
static char read_buffer[1 << 18];
/* Streams that wait for their next paced event, as a ring of descriptors in order of due_ns. */
static int paced[FDS_MAX];
static uint32_t paced_first, paced_count;

static void watch(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void hang_up(int fd)
{
    free(connections[fd].in);
    connections[fd] = (struct connection){0};
    close(fd);
}

static bool send_all(int fd, const char *data, size_t len)
{
    while (len) {
        ssize_t n = send(fd, data, len, MSG_NOSIGNAL);
        if (n > 0) {
            data += n;
            len -= (size_t)n;
        } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
            return false;
        }
    }
    return true;
}

static uint64_t now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void send_event(int fd)
{
    struct connection *connection = &connections[fd];
    bool last = --connection->events_left == 0;
    events_sent++;
    bool ok = send_all(fd, event_text, event_len);
    if (ok && last)
        ok = send_all(fd, stream_end, sizeof stream_end - 1);
    if (!ok) {
        hang_up(fd);
    } else if (!last && pace_us) {
        connection->due_ns = now_ns() + pace_us * 1000;
        paced[(paced_first + paced_count++) % FDS_MAX] = fd;
    }
}

static void answer_post(int fd)
{
    served++;
    if (events_an_answer == 0) {
        if (!send_all(fd, answer, answer_len))
            hang_up(fd);
        return;
    }
    connections[fd].events_left = events_an_answer;
    if (!send_all(fd, stream_head, stream_head_len)) {
        hang_up(fd);
        return;
    }
    do
        send_event(fd);
    while (!pace_us && connections[fd].open && connections[fd].events_left);
}

static void answer_get(int fd, const char *path)
{
    char body[256], out[512];
    int len;
    if (strncmp(path, "/events", 7) == 0)
        len = snprintf(body, sizeof body, "%llu\n", (unsigned long long)events_sent);
    else if (strncmp(path, "/count", 6) == 0)
        len = snprintf(body, sizeof body, "%llu\n", (unsigned long long)served);
    else if (strncmp(path, "/v1/models", 10) == 0)
        len = snprintf(body, sizeof body,
                       "{\"object\":\"list\",\"data\":[{\"id\":\"bench\",\"object\":\"model\"}]}");
    else
        len = snprintf(body, sizeof body, "ok\n");
    int size =
        snprintf(out, sizeof out, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len, body);
    if (!send_all(fd, out, (size_t)size))
        hang_up(fd);
}

/* One whole request at the start of data? Returns its length or 0. */
static size_t request_length(const char *data, size_t len)
{
    const char *end = memmem(data, len, "\r\n\r\n", 4);
    if (!end)
        return 0;
    size_t head = (size_t)(end - data) + 4;
    const char *at = data;
    size_t body = 0;
    while (at < end) {
        if (strncasecmp(at, "content-length:", 15) == 0)
            body = strtoul(at + 15, NULL, 10);
        at = memchr(at, '\n', (size_t)(end + 2 - at));
        if (!at)
            break;
        at++;
    }
    return head + body <= len ? head + body : 0;
}

static void keep(struct connection *connection, const char *data, size_t len)
{
    if (connection->in_len + len > connection->in_capacity) {
        connection->in_capacity = (connection->in_len + len) * 2;
        connection->in = realloc(connection->in, connection->in_capacity);
        if (!connection->in)
            abort();
    }
    memcpy(connection->in + connection->in_len, data, len);
    connection->in_len += len;
}

static void take(int fd, const char *data, size_t len)
{
    while (len && connections[fd].open) {
        size_t used = request_length(data, len);
        if (used == 0) {
            keep(&connections[fd], data, len);
            return;
        }
        if (data[0] == 'G')
            answer_get(fd, data + 4);
        else
            answer_post(fd);
        data += used;
        len -= used;
    }
}

static void on_readable(int fd)
{
    struct connection *connection = &connections[fd];
    ssize_t n = read(fd, read_buffer, sizeof read_buffer);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        hang_up(fd);
        return;
    }
    if (n < 0)
        return;
    if (connection->in_len == 0) {
        take(fd, read_buffer, (size_t)n);
        return;
    }
    keep(connection, read_buffer, (size_t)n);
    char *whole = connection->in;
    size_t len = connection->in_len;
    connection->in = NULL;
    connection->in_len = connection->in_capacity = 0;
    take(fd, whole, len);
    free(whole);
}

static void on_connection(int listener)
{
    int fd;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK)) >= 0) {
        if (fd >= FDS_MAX) {
            close(fd);
            continue;
        }
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
        connections[fd] = (struct connection){.open = true};
        watch(fd);
    }
}

static void on_pace(int timer)
{
    uint64_t expired;
    if (read(timer, &expired, sizeof expired) != sizeof expired)
        return;
    uint64_t now = now_ns();
    for (uint32_t left = paced_count; left; left--) {
        int fd = paced[paced_first];
        if (connections[fd].open && connections[fd].due_ns > now)
            return;
        paced_first = (paced_first + 1) % FDS_MAX;
        paced_count--;
        if (connections[fd].open && connections[fd].events_left)
            send_event(fd);
    }
}

static int listen_on(int port)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    struct sockaddr_in address = {.sin_family = AF_INET,
                                  .sin_port = htons((uint16_t)port),
                                  .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 4096)) {
        fprintf(stderr, "bench_backend: port %d: %s\n", port, strerror(errno));
        exit(1);
    }
    socklen_t len = sizeof address;
    getsockname(fd, (struct sockaddr *)&address, &len);
    printf("port %u\n", ntohs(address.sin_port));
    connections[fd] = (struct connection){.open = true, .listening = true};
    watch(fd);
    return fd;
}

static void prepare_answers(void)
{
    static const char body[] =
        "{\"id\":\"chatcmpl-1\",\"object\":\"chat.completion\",\"created\":1,\"model\":\"bench\","
        "\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":\"A short "
        "answer "
        "of a few words.\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":500,"
        "\"total_tokens\":508,\"completion_tokens\":8}}";
    static const char event[] =
        "data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1,"
        "\"model\":\"bench\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"
        "\"logprobs\":null,\"finish_reason\":null}]}\n\n";
    answer_len = (size_t)snprintf(answer, sizeof answer,
                                  "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
                                  "Content-Length: %zu\r\n\r\n%s",
                                  sizeof body - 1, body);
    event_len =
        (size_t)snprintf(event_text, sizeof event_text, "%zx\r\n%s\r\n", sizeof event - 1, event);
    stream_head_len = (size_t)snprintf(stream_head, sizeof stream_head,
                                       "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
                                       "Transfer-Encoding: chunked\r\n\r\n");
}

int main(int argc, char **argv)
{
    signal(SIGPIPE, SIG_IGN);
    epoll_fd = epoll_create1(0);
    prepare_answers();
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--events") == 0 && i + 1 < argc)
            events_an_answer = (uint32_t)strtoul(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--pace-us") == 0 && i + 1 < argc)
            pace_us = strtoul(argv[++i], NULL, 10);
        else
            listen_on(atoi(argv[i]));
    }
    int timer = -1;
    if (pace_us) {
        timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
        struct timespec every = {.tv_nsec = 1000000};
        timerfd_settime(timer, 0, &(struct itimerspec){every, every}, NULL);
        watch(timer);
    }
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        struct epoll_event ready[256];
        int n = epoll_wait(epoll_fd, ready, 256, -1);
        for (int i = 0; i < n; i++) {
            int fd = ready[i].data.fd;
            if (fd == timer)
                on_pace(fd);
            else if (connections[fd].listening)
                on_connection(fd);
            else if (connections[fd].open)
                on_readable(fd);
        }
    }
}
