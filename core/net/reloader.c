#include "reloader.h"

#include <string.h>
#include <sys/stat.h>

#include "check.h"
#include "log.h"
#include "memory.h"

static const struct kvr_reloader_options default_options = {
    .quiet_ns = 20000000,
    .hurry_ns = 60000000,
    .fallback_ns = 50000000,
    .calm_ns = 1000000000,
};

/* What tells one state of a file from another without reading it. All zero: it is not there. */
struct signature {
    uint64_t device;
    uint64_t inode;
    uint64_t size;
    uint64_t modified_ns;
    uint64_t changed_ns;
};

struct watched_directory {
    struct kvr_list link;
    struct kvr_reloader *reloader;
    char *path;
    uv_fs_event_t watch;
    uint64_t device; /* of the directory that is watched, which its path may have left */
    uint64_t inode;
    uint64_t retry_ns; /* a refused watch is asked for again then */
    uint32_t files;
    bool watching;
    bool stirred; /* an event has come that is not yet looked into */
    bool refused; /* the last attempt to watch was refused */
};

struct watched_file {
    struct kvr_list link;
    struct watched_directory *directory;
    char *path;
    const char *name; /* the end of path */
    uint32_t uses;    /* 0: removed, only waiting for its report to return */
    struct signature seen;
    bool named;     /* by an event that is not yet looked into */
    bool due;       /* to be reported */
    bool reporting; /* on_changed is looking at its path */
};

static void plan_poll(struct kvr_reloader *reloader);

static struct watched_file *file_of(struct kvr_list *link)
{
    return KVR_LIST_ENTRY(link, struct watched_file, link);
}

static struct watched_directory *directory_of(struct kvr_list *link)
{
    return KVR_LIST_ENTRY(link, struct watched_directory, link);
}

static uint64_t nanoseconds(struct timespec time)
{
    return (uint64_t)time.tv_sec * 1000000000u + (uint64_t)time.tv_nsec;
}

static struct signature read_signature(const char *path)
{
    struct stat status;
    if (stat(path, &status) != 0)
        return (struct signature){0};
    return (struct signature){.device = status.st_dev,
                              .inode = status.st_ino,
                              .size = (uint64_t)status.st_size,
                              .modified_ns = nanoseconds(status.st_mtim),
                              .changed_ns = nanoseconds(status.st_ctim)};
}

static bool same(const struct signature *a, const struct signature *b)
{
    return memcmp(a, b, sizeof *a) == 0;
}

/* ---- the end of handles ---- */

static void release(struct kvr_reloader *reloader)
{
    if (--reloader->open_handles == 0)
        reloader->on_closed(reloader->closed_context);
}

static void on_timer_closed(uv_handle_t *handle)
{
    release(handle->data);
}

static void on_watch_closed(uv_handle_t *handle)
{
    struct watched_directory *directory = handle->data;
    struct kvr_reloader *reloader = directory->reloader;
    kvr_free(directory->path);
    kvr_free(directory);
    release(reloader);
}

static void free_file(struct watched_file *file)
{
    kvr_free(file->path);
    kvr_free(file);
}

static void drop_file(struct kvr_reloader *reloader, struct watched_file *file)
{
    struct watched_directory *directory = file->directory;
    kvr_list_remove(&file->link);
    reloader->files_count--;
    file->uses = 0;
    if (!file->reporting)
        free_file(file);
    if (--directory->files == 0) {
        kvr_list_remove(&directory->link);
        uv_close((uv_handle_t *)&directory->watch, on_watch_closed);
    }
}

/* ---- reports ---- */

static struct watched_file *next_due(struct kvr_reloader *reloader)
{
    KVR_LIST_FOREACH (link, &reloader->files)
        if (file_of(link)->due)
            return file_of(link);
    return NULL;
}

/* Files may come and go in between: the list is looked through anew for each. */
static void report_due(struct kvr_reloader *reloader)
{
    if (reloader->reporting)
        return;
    reloader->reporting = true;
    for (struct watched_file *file; (file = next_due(reloader));) {
        file->due = false;
        file->reporting = true;
        reloader->counters.reports++;
        reloader->on_changed(reloader->context, file->path);
        file->reporting = false;
        if (file->uses == 0)
            free_file(file);
    }
    reloader->reporting = false;
}

static void look_at_file(struct watched_file *file)
{
    struct signature now = read_signature(file->path);
    if (file->named || !same(&now, &file->seen))
        file->due = true;
    file->named = false;
    file->seen = now;
}

/* ---- watches ---- */

static void on_event(uv_fs_event_t *watch, const char *name, int events, int status);

/* Watches what the directory's path names now. */
static void watch(struct watched_directory *directory, uint64_t now_ns)
{
    struct kvr_reloader *reloader = directory->reloader;
    if (reloader->options.poll_only)
        return;
    struct signature is = read_signature(directory->path);
    if (directory->watching && is.device == directory->device && is.inode == directory->inode)
        return;
    if (directory->watching)
        uv_fs_event_stop(&directory->watch);
    directory->watching = false;
    if (is.inode == 0 || (directory->refused && now_ns < directory->retry_ns))
        return;
    int rc = uv_fs_event_start(&directory->watch, on_event, directory->path, 0);
    directory->watching = rc == 0;
    directory->device = is.device;
    directory->inode = is.inode;
    if (rc) {
        reloader->counters.refused_watches++;
        directory->retry_ns = now_ns + reloader->options.calm_ns;
        if (!directory->refused)
            kvr_log(KVR_LOG_WARN, "reload: cannot watch %s (%s), its files are polled",
                    directory->path, uv_strerror(rc));
    }
    directory->refused = rc != 0;
}

static void on_settled(uv_timer_t *timer)
{
    struct kvr_reloader *reloader = timer->data;
    uint64_t now_ns = kvr_loop_now();
    reloader->first_event_ns = 0;
    KVR_LIST_FOREACH (link, &reloader->directories)
        if (directory_of(link)->stirred)
            watch(directory_of(link), now_ns); /* it may be another by now */
    KVR_LIST_FOREACH (link, &reloader->files)
        if (file_of(link)->directory->stirred)
            look_at_file(file_of(link));
    KVR_LIST_FOREACH (link, &reloader->directories)
        directory_of(link)->stirred = false;
    plan_poll(reloader);
    report_due(reloader);
}

static void on_event(uv_fs_event_t *handle, const char *name, int events, int status)
{
    (void)events;
    struct watched_directory *directory = handle->data;
    struct kvr_reloader *reloader = directory->reloader;
    if (reloader->closing || directory->files == 0)
        return;
    reloader->counters.events++;
    directory->stirred = true;
    if (status < 0)
        directory->device = directory->inode = 0; /* lost: to be watched anew */
    KVR_LIST_FOREACH (link, &reloader->files) {
        struct watched_file *file = file_of(link);
        if (file->directory == directory && name && strcmp(file->name, name) == 0)
            file->named = true;
    }
    uint64_t now_ns = kvr_loop_now();
    if (reloader->first_event_ns == 0)
        reloader->first_event_ns = now_ns;
    uint64_t due_ns = now_ns + reloader->options.quiet_ns;
    uint64_t last_ns = reloader->first_event_ns + reloader->options.hurry_ns;
    if (due_ns > last_ns)
        due_ns = last_ns;
    uint64_t ms = due_ns > now_ns ? (due_ns - now_ns + 999999) / 1000000 : 1;
    uv_timer_start(&reloader->settle, on_settled, ms, 0);
}

/* ---- polling ---- */

static void on_poll(uv_timer_t *timer)
{
    struct kvr_reloader *reloader = timer->data;
    uint64_t now_ns = kvr_loop_now();
    KVR_LIST_FOREACH (link, &reloader->directories)
        watch(directory_of(link), now_ns);
    KVR_LIST_FOREACH (link, &reloader->files)
        if (!file_of(link)->directory->stirred) /* else it is looked at when that has settled */
            look_at_file(file_of(link));
    plan_poll(reloader);
    report_due(reloader);
}

/* Sets the next poll by the worst watched directory; not while there is none. */
static void plan_poll(struct kvr_reloader *reloader)
{
    if (reloader->closing)
        return;
    uint64_t wait_ns = reloader->options.calm_ns;
    KVR_LIST_FOREACH (link, &reloader->directories)
        if (!directory_of(link)->watching)
            wait_ns = reloader->options.fallback_ns;
    if (kvr_list_empty(&reloader->directories))
        uv_timer_stop(&reloader->poll);
    else
        uv_timer_start(&reloader->poll, on_poll, (wait_ns + 999999) / 1000000, 0);
}

/* ---- what is watched ---- */

static struct watched_directory *find_directory(struct kvr_reloader *reloader, const char *path,
                                                size_t len)
{
    KVR_LIST_FOREACH (link, &reloader->directories) {
        struct watched_directory *directory = directory_of(link);
        if (strlen(directory->path) == len && memcmp(directory->path, path, len) == 0)
            return directory;
    }
    return NULL;
}

/* The directory of `path`, watched from now on if it was not. */
static struct watched_directory *directory_for(struct kvr_reloader *reloader, const char *path,
                                               const char *name)
{
    size_t len = (size_t)(name - path);
    while (len > 1 && path[len - 1] == '/')
        len--;
    if (len == 0) {
        path = ".";
        len = 1;
    }
    struct watched_directory *directory = find_directory(reloader, path, len);
    if (directory)
        return directory;
    directory = kvr_alloc_zero(1, sizeof *directory);
    directory->reloader = reloader;
    directory->path = kvr_strndup(path, len);
    KVR_CHECK(uv_fs_event_init(reloader->loop->uv, &directory->watch) == 0);
    directory->watch.data = directory;
    reloader->open_handles++;
    kvr_list_append(&reloader->directories, &directory->link);
    watch(directory, kvr_loop_now());
    return directory;
}

static struct watched_file *find_file(struct kvr_reloader *reloader, const char *path)
{
    KVR_LIST_FOREACH (link, &reloader->files)
        if (strcmp(file_of(link)->path, path) == 0)
            return file_of(link);
    return NULL;
}

int kvr_reloader_add(struct kvr_reloader *reloader, const char *path, struct kvr_error *error)
{
    KVR_CHECK(!reloader->closing);
    struct watched_file *file = find_file(reloader, path);
    if (file) {
        file->uses++;
        return 0;
    }
    if (reloader->files_count == KVR_RELOADER_FILES_MAX)
        return kvr_error_set(error, KVR_E_LIMIT, "%s: more than %d files to watch", path,
                             KVR_RELOADER_FILES_MAX);
    file = kvr_alloc_zero(1, sizeof *file);
    file->path = kvr_strndup(path, strlen(path));
    const char *slash = strrchr(file->path, '/');
    file->name = slash ? slash + 1 : file->path;
    file->uses = 1;
    file->directory = directory_for(reloader, file->path, file->name);
    file->directory->files++;
    file->seen = read_signature(file->path);
    kvr_list_append(&reloader->files, &file->link);
    reloader->files_count++;
    plan_poll(reloader);
    return 0;
}

void kvr_reloader_remove(struct kvr_reloader *reloader, const char *path)
{
    struct watched_file *file = find_file(reloader, path);
    if (!file || --file->uses > 0)
        return;
    drop_file(reloader, file);
    plan_poll(reloader);
}

#define DEFAULT_OPTION(name)                                                                       \
    if (reloader->options.name == 0)                                                               \
    reloader->options.name = default_options.name

void kvr_reloader_init(struct kvr_reloader *reloader, struct kvr_loop *loop,
                       const struct kvr_reloader_options *options, void *context,
                       void (*on_changed)(void *context, const char *path))
{
    *reloader = (struct kvr_reloader){.loop = loop, .context = context, .on_changed = on_changed};
    if (options)
        reloader->options = *options;
    DEFAULT_OPTION(quiet_ns);
    DEFAULT_OPTION(hurry_ns);
    DEFAULT_OPTION(fallback_ns);
    DEFAULT_OPTION(calm_ns);
    kvr_list_init(&reloader->files);
    kvr_list_init(&reloader->directories);
    KVR_CHECK(uv_timer_init(loop->uv, &reloader->settle) == 0);
    KVR_CHECK(uv_timer_init(loop->uv, &reloader->poll) == 0);
    reloader->settle.data = reloader;
    reloader->poll.data = reloader;
    reloader->open_handles = 2;
}

void kvr_reloader_close(struct kvr_reloader *reloader, void *context,
                        void (*on_closed)(void *context))
{
    KVR_CHECK(!reloader->closing);
    reloader->closing = true;
    reloader->closed_context = context;
    reloader->on_closed = on_closed;
    while (!kvr_list_empty(&reloader->files))
        drop_file(reloader, file_of(reloader->files.next));
    uv_close((uv_handle_t *)&reloader->settle, on_timer_closed);
    uv_close((uv_handle_t *)&reloader->poll, on_timer_closed);
}
