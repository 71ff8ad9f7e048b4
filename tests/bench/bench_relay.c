/* The least that a proxy can do: passes on what it reads, over raw epoll, and looks at none of it.
 * A client's connection has one of its own to the next backend. What is left between this and a
 * proxy is the proxy's; what is left between this and nothing is the kernel's, for any of them.
 *
 *   bench_relay BACKEND_PORT [BACKEND_PORT ...]
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#define FDS_MAX 65536

static int other_end[FDS_MAX]; /* by descriptor; 0: not open */
static char buffer[1 << 16];
static int epoll_fd;

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){.sin_family = AF_INET,
                                .sin_port = htons((uint16_t)port),
                                .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
}

static void fail(const char *what)
{
    fprintf(stderr, "bench_relay: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void watch(int fd)
{
    struct epoll_event event = {.events = EPOLLIN, .data.fd = fd};
    epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

static void start(int fd, int other)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    other_end[fd] = other;
    watch(fd);
}

static void hang_up(int fd)
{
    int other = other_end[fd];
    other_end[fd] = other_end[other] = 0;
    close(fd);
    close(other);
}

static int connect_to(int port)
{
    struct sockaddr_in address = loopback(port);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || fd >= FDS_MAX || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        fail("a backend");
    fcntl(fd, F_SETFL, O_NONBLOCK);
    return fd;
}

static void on_connection(int listener, int backend_port)
{
    int fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK);
    if (fd < 0)
        return;
    if (fd >= FDS_MAX)
        fail("too many clients");
    int backend = connect_to(backend_port);
    start(fd, backend);
    start(backend, fd);
}

static void on_readable(int fd)
{
    ssize_t len = recv(fd, buffer, sizeof buffer, 0);
    if (len < 0 && errno == EAGAIN)
        return;
    bool relayed = len > 0;
    for (ssize_t sent = 0; relayed && sent < len;) {
        ssize_t n = send(other_end[fd], buffer + sent, (size_t)(len - sent), MSG_NOSIGNAL);
        sent += n > 0 ? n : 0;
        relayed = n >= 0 || errno == EAGAIN; /* a full socket is tried until it is not */
    }
    if (!relayed)
        hang_up(fd);
}

static int listen_on_some_port(void)
{
    struct sockaddr_in address = loopback(0);
    socklen_t len = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        listen(fd, 4096) != 0 || getsockname(fd, (struct sockaddr *)&address, &len) != 0)
        fail("cannot listen");
    printf("port %u\n", ntohs(address.sin_port));
    fflush(stdout);
    return fd;
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "usage: bench_relay BACKEND_PORT [BACKEND_PORT ...]\n");
        return 2;
    }
    epoll_fd = epoll_create1(0);
    int listener = listen_on_some_port();
    watch(listener);
    for (int turn = 0;;) {
        struct epoll_event ready[256];
        int count = epoll_wait(epoll_fd, ready, 256, -1);
        for (int i = 0; i < count; i++) {
            int fd = ready[i].data.fd;
            if (fd == listener)
                on_connection(fd, atoi(argv[1 + turn++ % (argc - 1)]));
            else if (other_end[fd])
                on_readable(fd);
        }
    }
}
