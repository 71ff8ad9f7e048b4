/* Keeps so many chat streams open on each of several ports: one that has ended is asked for again
 * on its connection. What comes is read in rounds, as a busy proxy reads, and thrown away; a
 * server's writes then wake nobody, and what it costs is its own.
 *
 *   bench_streams --streams M --tokens T [--round-ms R] [--prompt-bytes B] PORT...
 *
 * Runs until it is ended. A stream that fails is said on stderr, and ends the program. */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STREAMS_MAX 65536

static struct {
    uint32_t streams;
    uint32_t tokens;
    uint32_t prompt_bytes;
    double round_ms;
} options = {400, 400, 1200, 10};

static char request[64 * 1024];
static size_t request_len;
static int streams[STREAMS_MAX];
static uint32_t streams_len;

static void die(const char *what)
{
    fprintf(stderr, "bench_streams: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void write_request(void)
{
    char body[60 * 1024];
    size_t len = (size_t)snprintf(
        body, sizeof body,
        "{\"max_tokens\":%u,\"stream\":true,\"messages\":[{\"role\":\"user\",\"content\":\"",
        options.tokens);
    while (len + 64 < sizeof body && len < options.prompt_bytes)
        len += (size_t)snprintf(body + len, sizeof body - len, "some words ");
    len += (size_t)snprintf(body + len, sizeof body - len, "\"}]}");
    request_len =
        (size_t)snprintf(request, sizeof request,
                         "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\n"
                         "Content-Type: application/json\r\nContent-Length: %zu\r\n\r\n%s",
                         len, body);
}

static void ask(int fd)
{
    if (send(fd, request, request_len, MSG_NOSIGNAL) != (ssize_t)request_len)
        die("send");
}

static void open_stream(uint16_t port)
{
    struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    int on = 1;
    if (fd < 0 || connect(fd, (const struct sockaddr *)&address, sizeof address) ||
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on))
        die("connect");
    ask(fd);
    streams[streams_len++] = fd;
}

static void read_stream(int fd)
{
    static char bytes[256 * 1024];
    static const char last[] = "\r\n0\r\n\r\n";
    ssize_t n = recv(fd, bytes, sizeof bytes, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN)
        return;
    if (n == 0)
        errno = ECONNRESET;
    if (n <= 0)
        die("recv");
    size_t tail = sizeof last - 1;
    if ((size_t)n >= tail && memcmp(bytes + n - tail, last, tail) == 0)
        ask(fd);
}

static int read_options(int argc, char **argv)
{
    int at = 1;
    for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
        double value = strtod(argv[at + 1], NULL);
        if (strcmp(argv[at], "--streams") == 0)
            options.streams = (uint32_t)value;
        else if (strcmp(argv[at], "--tokens") == 0)
            options.tokens = (uint32_t)value;
        else if (strcmp(argv[at], "--round-ms") == 0)
            options.round_ms = value;
        else if (strcmp(argv[at], "--prompt-bytes") == 0)
            options.prompt_bytes = (uint32_t)value;
        else
            return argc;
    }
    return at;
}

int main(int argc, char **argv)
{
    int at = read_options(argc, argv);
    if (at >= argc) {
        fputs("bench_streams --streams M --tokens T [--round-ms R] [--prompt-bytes B] PORT...\n",
              stderr);
        return 2;
    }
    write_request();
    for (; at < argc; at++)
        for (uint32_t i = 0; i < options.streams && streams_len < STREAMS_MAX; i++)
            open_stream((uint16_t)atoi(argv[at]));
    const struct timespec pause = {.tv_nsec = (long)(options.round_ms * 1e6)};
    for (;;) {
        nanosleep(&pause, NULL);
        for (uint32_t i = 0; i < streams_len; i++)
            read_stream(streams[i]);
    }
}
