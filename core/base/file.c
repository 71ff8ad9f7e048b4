#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define READ_BYTES 65536

static const char *kind_of(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a pipe"
           : S_ISCHR(mode)  ? "a device"
           : S_ISBLK(mode)  ? "a device"
                            : "no regular file";
}

/* A descriptor, or a code of error.h. */
static int open_any(const char *path, struct stat *status, struct kvr_error *error)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, status) != 0) {
        int code = errno == ENOENT ? KVR_E_NOT_FOUND : KVR_E_IO;
        kvr_error_set(error, code, "cannot read %s: %s", path, strerror(errno));
        if (fd >= 0)
            close(fd);
        return code;
    }
    return fd;
}

static FILE *stream_of(int fd)
{
    FILE *file = fdopen(fd, "rb");
    KVR_CHECK(file); /* fails for want of memory only */
    return file;
}

static int refuse(int fd, const char *path, const char *what, struct kvr_error *error)
{
    close(fd);
    return kvr_error_set(error, KVR_E_IO, "cannot read %s: it is %s", path, what);
}

int kvr_file_open(const char *path, FILE **file, struct kvr_error *error)
{
    struct stat status = {0};
    int fd = open_any(path, &status, error);
    if (fd < 0)
        return fd;
    if (!S_ISREG(status.st_mode))
        return refuse(fd, path, kind_of(status.st_mode), error);
    *file = stream_of(fd);
    return 0;
}

/* Waits until the pipe has bytes, or had a writer that is gone, or has one that takes its time.
 * EOF: none of these; else a byte that was read to find out, or -2. */
static int await_writer(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};
    unsigned char byte;
    if (poll(&wait, 1, KVR_FILE_WRITER_MS) != 0)
        return -2;
    ssize_t n = read(fd, &byte, 1); /* without waiting: 0 says that it has no writer */
    return n == 0 ? EOF : n == 1 ? byte : -2;
}

int kvr_file_open_given(const char *path, FILE **file, struct kvr_error *error)
{
    struct stat status = {0};
    int fd = open_any(path, &status, error), first = -2;
    if (fd < 0)
        return fd;
    if (!S_ISREG(status.st_mode) && !S_ISFIFO(status.st_mode))
        return refuse(fd, path, kind_of(status.st_mode), error);
    if (S_ISFIFO(status.st_mode) && (first = await_writer(fd)) == EOF)
        return refuse(fd, path, "a pipe that nobody writes to", error);
    KVR_CHECK(fcntl(fd, F_SETFL, 0) == 0); /* from now on a writer may take its time */
    *file = stream_of(fd);
    KVR_CHECK(first < 0 || ungetc(first, *file) == first);
    return 0;
}

int kvr_file_read_rest(FILE *file, const char *name, size_t most, struct kvr_buffer *text,
                       struct kvr_error *error)
{
    size_t end = text->len + most, len;
    do {
        len = fread(kvr_buffer_reserve(text, READ_BYTES), 1, READ_BYTES, file);
        text->len += len;
    } while (len > 0 && text->len <= end);
    if (ferror(file))
        return kvr_error_set(error, KVR_E_IO, "cannot read %s: %s", name, strerror(errno));
    if (text->len > end)
        return kvr_error_set(error, KVR_E_LIMIT, "%s is over %zu bytes", name, most);
    return 0;
}

static int read_and_close(FILE *file, const char *path, size_t most, struct kvr_buffer *text,
                          struct kvr_error *error)
{
    int rc = kvr_file_read_rest(file, path, most, text, error);
    fclose(file);
    return rc;
}

int kvr_file_read(const char *path, size_t most, struct kvr_buffer *text, struct kvr_error *error)
{
    FILE *file = NULL;
    int rc = kvr_file_open(path, &file, error);
    return rc ? rc : read_and_close(file, path, most, text, error);
}

int kvr_file_read_given(const char *path, size_t most, struct kvr_buffer *text,
                        struct kvr_error *error)
{
    FILE *file = NULL;
    int rc = kvr_file_open_given(path, &file, error);
    return rc ? rc : read_and_close(file, path, most, text, error);
}
