#include "file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "check.h"

int kvr_file_open(const char *path, FILE **file, struct kvr_error *error)
{
    struct stat status = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return kvr_error_set(error, errno == ENOENT ? KVR_E_NOT_FOUND : KVR_E_IO,
                             "cannot read %s: %s", path, strerror(errno));
    if (fstat(fd, &status) != 0 || !S_ISREG(status.st_mode)) {
        close(fd);
        return kvr_error_set(error, KVR_E_IO, "cannot read %s: it is %s", path,
                             S_ISDIR(status.st_mode) ? "a directory" : "no regular file");
    }
    *file = fdopen(fd, "rb");
    KVR_CHECK(*file); /* fails for want of memory only */
    return 0;
}
