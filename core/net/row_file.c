#include "row_file.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "memory.h"

#define MODE 0640 /* rows tell who asked for what */

uint64_t kvr_row_count(struct kvr_slice lines)
{
    uint64_t count = 0;
    const char *end = lines.data + lines.len;
    for (const char *at = lines.data; lines.len && at < end; count++) {
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at)
            break;
        at++;
    }
    return count;
}

/* Bytes of the whole lines among the first `len` of `data`. */
static size_t whole_lines(const char *data, size_t len)
{
    const char *feed = len ? memrchr(data, '\n', len) : NULL;
    return feed ? (size_t)(feed - data) + 1 : 0;
}

/* ---- the handle ---- */

static bool ends_inside_a_line(const char *path, off_t size)
{
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return false;
    char last = '\n';
    ssize_t n = pread(fd, &last, 1, size - 1);
    close(fd);
    return n == 1 && last != '\n';
}

/* Opens what is at the path, or creates it. Returns 0 with the handle in `file`, which must have
 * none, or an errno. A pipe that nobody reads and one that is full fail instead of waiting. */
static int open_path(struct kvr_row_file *file)
{
    int fd = open(file->path, O_WRONLY | O_APPEND | O_CREAT | O_NONBLOCK | O_CLOEXEC, MODE);
    if (fd < 0)
        return errno;
    struct stat by_handle, link;
    if (fstat(fd, &by_handle) != 0) {
        int failed = errno;
        close(fd);
        return failed;
    }
    file->fd = fd;
    file->regular = S_ISREG(by_handle.st_mode);
    file->rotates = file->regular && lstat(file->path, &link) == 0 && !S_ISLNK(link.st_mode);
    file->size = file->regular ? (uint64_t)by_handle.st_size : 0;
    file->torn = file->size > 0 && ends_inside_a_line(file->path, by_handle.st_size);
    return 0;
}

/* Replaces the handle by what is at the path now. On failure the old one stays. */
static int reopen(struct kvr_row_file *file)
{
    struct kvr_row_file old = *file;
    int failed = open_path(file);
    if (failed == 0)
        close(old.fd);
    return failed;
}

static bool is_at_its_path(const struct kvr_row_file *file)
{
    struct stat by_handle, by_path;
    return fstat(file->fd, &by_handle) == 0 && stat(file->path, &by_path) == 0 &&
           by_handle.st_dev == by_path.st_dev && by_handle.st_ino == by_path.st_ino;
}

int kvr_row_file_open(struct kvr_row_file *file, const char *path, uint64_t rotate_bytes,
                      uint32_t keep, struct kvr_error *error)
{
    KVR_CHECK(rotate_bytes > 0 && keep > 0);
    signal(SIGXFSZ, SIG_IGN);
    *file = (struct kvr_row_file){.fd = -1, .rotate_bytes = rotate_bytes, .keep = keep};
    file->path = kvr_strndup(path, strlen(path));
    int failed = open_path(file);
    if (failed == 0)
        return 0;
    kvr_free(file->path);
    file->path = NULL;
    return kvr_error_set(error, KVR_E_IO, "cannot write rows to %s: %s", path, strerror(failed));
}

void kvr_row_file_close(struct kvr_row_file *file)
{
    if (file->fd >= 0)
        close(file->fd);
    file->fd = -1;
    kvr_free(file->path);
    file->path = NULL;
}

/* ---- rotation ---- */

static void numbered(char *out, size_t size, const char *path, uint32_t number)
{
    if (number == 0)
        snprintf(out, size, "%s", path);
    else
        snprintf(out, size, "%s.%u", path, number);
}

/* Moves the file out of the way and opens a new one. Returns 0 or an errno; then the old handle
 * stays, and the file its name if that can be. */
static int rotate(struct kvr_row_file *file)
{
    size_t size = strlen(file->path) + 16;
    char *from = kvr_alloc(size);
    char *to = kvr_alloc(size);
    int failed = 0;
    for (uint32_t i = file->keep; i > 0; i--) {
        numbered(from, size, file->path, i - 1);
        numbered(to, size, file->path, i);
        failed = rename(from, to) == 0 ? 0 : errno; /* only the last one counts */
    }
    if (failed == 0) {
        failed = reopen(file);
        if (failed)
            (void)rename(to, file->path);
    }
    kvr_free(from);
    kvr_free(to);
    return failed;
}

/* ---- writing ---- */

/* Returns how many bytes went out; fewer than `len` with errno set. */
static size_t write_all(int fd, const char *data, size_t len)
{
    size_t done = 0;
    while (done < len) {
        ssize_t n = write(fd, data + done, len - done);
        if (n > 0)
            done += (size_t)n;
        else if (n == 0)
            errno = EIO;
        if (n == 0 || (n < 0 && errno != EINTR))
            break;
    }
    return done;
}

/* The write failed inside a line: takes its beginning back. */
static void take_back(struct kvr_row_file *file, size_t part)
{
    struct stat status;
    uint64_t before = file->size - part;
    /* If the size is another, somebody else appends here: cutting would take his lines. */
    if (file->regular && fstat(file->fd, &status) == 0 && (uint64_t)status.st_size == file->size &&
        ftruncate(file->fd, (off_t)before) == 0)
        file->size = before;
    else
        file->torn = true;
}

/* Appends whole lines; false when that failed, with what was not written counted as dropped. */
static bool append(struct kvr_row_file *file, struct kvr_slice lines, struct kvr_row_batch *batch)
{
    size_t done = 0;
    if (file->torn && write_all(file->fd, "\n", 1) == 1) {
        file->torn = false;
        file->size++;
    }
    if (!file->torn)
        done = write_all(file->fd, lines.data, lines.len);
    bool failed = done < lines.len;
    if (failed)
        batch->write_errno = errno;
    size_t whole = whole_lines(lines.data, done);
    file->size += done;
    if (done > whole)
        take_back(file, done - whole);
    batch->bytes += whole;
    batch->rows += kvr_row_count(kvr_slice_make(lines.data, whole));
    batch->dropped += kvr_row_count(kvr_slice_make(lines.data + whole, lines.len - whole));
    return !failed;
}

static void make_current(struct kvr_row_file *file, struct kvr_row_batch *batch)
{
    if (!file->regular || is_at_its_path(file))
        return;
    batch->open_errno = reopen(file);
    if (batch->open_errno)
        batch->reopen_failures++;
    else
        batch->reopens++;
}

/* How many of the lines go to the file as it is; 0: it must be rotated first. */
static size_t share_of(const struct kvr_row_file *file, struct kvr_slice lines)
{
    if (!file->rotates || file->size + lines.len <= file->rotate_bytes)
        return lines.len;
    uint64_t room = file->rotate_bytes > file->size ? file->rotate_bytes - file->size : 0;
    size_t share = whole_lines(lines.data, room < lines.len ? (size_t)room : lines.len);
    if (share == 0 && file->size == 0) /* a line longer than a file: it gets one of its own */
        share = (size_t)((char *)memchr(lines.data, '\n', lines.len) - lines.data) + 1;
    return share;
}

void kvr_row_file_write(struct kvr_row_file *file, struct kvr_slice lines,
                        struct kvr_row_batch *batch)
{
    KVR_CHECK(file->fd >= 0 && (lines.len == 0 || lines.data[lines.len - 1] == '\n'));
    make_current(file, batch);
    while (lines.len) {
        size_t share = share_of(file, lines);
        if (share == 0) {
            int failed = rotate(file);
            if (failed) { /* on with the old one; the next batch tries again */
                batch->open_errno = failed;
                batch->reopen_failures++;
                append(file, lines, batch);
                return;
            }
            batch->rotations++;
            continue;
        }
        bool good = append(file, kvr_slice_make(lines.data, share), batch);
        lines.data += share;
        lines.len -= share;
        if (!good) {
            batch->dropped += kvr_row_count(lines);
            return;
        }
    }
}
