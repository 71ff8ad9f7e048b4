#include "handed.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIRST 3
#define MOST  (KVR_LISTENERS_MAX + 1)

/* The next of "a:b:c", and `names` behind it. */
static struct kvr_slice next_name(const char **names)
{
    size_t len = strcspn(*names, ":");
    struct kvr_slice name = kvr_slice_make(*names, len);
    *names += len + ((*names)[len] == ':');
    return name;
}

static int take(struct kvr_handed *handed, int fd, struct kvr_slice name, struct kvr_error *error)
{
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
        return kvr_error_set(error, KVR_E_INVALID, "LISTEN_FDS: descriptor %d: %s", fd,
                             strerror(errno));
    bool is_admin = kvr_slice_is(name, "admin");
    if (is_admin && handed->admin[0])
        return kvr_error_set(error, KVR_E_INVALID, "LISTEN_FDNAMES: two sockets are named admin");
    if (!is_admin && handed->listen_count == KVR_LISTENERS_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "LISTEN_FDS: more than %d sockets for requests",
                             KVR_LISTENERS_MAX);
    char *address = is_admin ? handed->admin : handed->listen[handed->listen_count++];
    snprintf(address, sizeof handed->admin, "fd:%d", fd);
    return 0;
}

int kvr_handed_take(struct kvr_handed *handed, struct kvr_error *error)
{
    *handed = (struct kvr_handed){0};
    const char *pid = getenv("LISTEN_PID");
    const char *fds = getenv("LISTEN_FDS");
    const char *names = getenv("LISTEN_FDNAMES");
    if (!pid || !fds || strtol(pid, NULL, 10) != getpid())
        return 0;
    char *end;
    long count = strtol(fds, &end, 10);
    if (end == fds || *end || count < 0 || count > MOST)
        return kvr_error_set(error, KVR_E_INVALID, "LISTEN_FDS=%s: 0 to %d are possible", fds,
                             MOST);
    int rc = 0;
    for (int i = 0; rc == 0 && i < count; i++)
        rc = take(handed, FIRST + i, names ? next_name(&names) : kvr_slice_of(""), error);
    return rc;
}
