/* Holds many connections open at once and counts what comes over them, so that the memory of what
 * is in between can be measured while they stand.
 *
 *   bench_hold PORT --idle N --streams M --events E
 *
 * First N connections make one request each and then stay idle; a line "idle" says they stand. Then
 * M connections ask for a stream of E events each; "streaming" says that each has had its first. At
 * the end, one JSON line: streams that had all their events, events in all, idle connections still
 * open. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FDS_MAX 65536

static uint32_t events_of[FDS_MAX];
static bool ended[FDS_MAX], streaming[FDS_MAX];
static uint16_t port;
static int epoll_fd;

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static int open_one(bool stream, uint32_t seed)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address)) {
        fprintf(stderr, "bench_hold: cannot connect: %s\n", strerror(errno));
        exit(1);
    }
    char body[512], request[1024];
    int body_len =
        snprintf(body, sizeof body,
                 "{\"model\":\"bench\",\"stream\":%s,\"messages\":[{\"role\":\"user\","
                 "\"content\":\"conversation %u asks about a parcel and where it is\"}]}",
                 stream ? "true" : "false", seed);
    int len =
        stream ? snprintf(request, sizeof request,
                          "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
                          "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s",
                          body_len, body)
               : snprintf(request, sizeof request, "GET /healthz HTTP/1.1\r\nHost: bench\r\n\r\n");
    if (send(fd, request, (size_t)len, MSG_NOSIGNAL) != len)
        exit(1);
    streaming[fd] = stream;
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
    return fd;
}

/* Events are counted by their "data: {"; a chunk boundary inside that mark would hide one, so the
 * backend's one write an event matters: each mark then comes whole. */
static void take(int fd)
{
    static char buffer[1 << 16];
    ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN)) {
        ended[fd] = true;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, fd, NULL);
        return;
    }
    if (!streaming[fd]) {
        events_of[fd] = 1; /* it has been answered */
        return;
    }
    for (char *at = buffer; n > 0; at += 7) {
        at = memmem(at, (size_t)(buffer + n - at), "data: {", 7);
        if (!at)
            return;
        events_of[fd]++;
    }
}

/* Serves sockets until every one of fds[0..count) has at least `least` events, or time is up. */
static bool serve(const int *fds, uint32_t count, uint32_t least, double seconds)
{
    double until = now_s() + seconds;
    uint32_t done = 0;
    while (done < count && now_s() < until) {
        struct epoll_event ready[256];
        int n = epoll_wait(epoll_fd, ready, 256, 50);
        for (int i = 0; i < n; i++)
            take(ready[i].data.fd);
        while (done < count && events_of[fds[done]] >= least)
            done++;
    }
    return done == count;
}

int main(int argc, char **argv)
{
    uint32_t idle = 0, streams = 0, events = 64;
    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : "";
        if (strcmp(argv[i], "--idle") == 0)
            idle = (uint32_t)atoi(value), i++;
        else if (strcmp(argv[i], "--streams") == 0)
            streams = (uint32_t)atoi(value), i++;
        else if (strcmp(argv[i], "--events") == 0)
            events = (uint32_t)atoi(value), i++;
        else
            port = (uint16_t)atoi(argv[i]);
    }
    epoll_fd = epoll_create1(0);
    static int fds[FDS_MAX];
    for (uint32_t i = 0; i < idle; i++) {
        fds[i] = open_one(false, i);
        if (i % 100 == 99)
            serve(fds, i + 1, 1, 5);
    }
    bool good = serve(fds, idle, 1, 20);
    puts("idle");
    fflush(stdout);
    usleep(700000);
    for (uint32_t i = 0; i < streams; i++) {
        fds[idle + i] = open_one(true, i);
        if (i % 50 == 49)
            serve(fds + idle, i + 1, 1, 5);
    }
    good &= serve(fds + idle, streams, 1, 30);
    puts("streaming");
    fflush(stdout);
    good &= serve(fds + idle, streams, events, 120);
    uint64_t total = 0, whole = 0, open = 0;
    for (uint32_t i = 0; i < streams; i++) {
        total += events_of[fds[idle + i]];
        whole += events_of[fds[idle + i]] == events;
    }
    for (uint32_t i = 0; i < idle; i++)
        open += !ended[fds[i]];
    printf("{\"whole\":%llu,\"events\":%llu,\"idle_open\":%llu}\n", (unsigned long long)whole,
           (unsigned long long)total, (unsigned long long)open);
    return !good;
}
