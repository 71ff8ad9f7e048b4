/* Notices that a watched file changed, however it was changed: written in place, renamed over,
 * deleted and made again, reached by a symbolic link that now points elsewhere, its directory
 * replaced.
 *
 * The DIRECTORIES of the files are watched, because editors rename. An event of a directory starts
 * a short wait (quiet_ns without another event, at most hurry_ns), then the files in it that were
 * named by an event, or whose identity, size or times differ, are reported. A file that is gone is
 * reported once too: the caller reads it, fails, and keeps what it has. Whether the content is
 * another is the caller's question: a report means "look again".
 *
 * Where the system refuses a watch (no inotify, none left, the directory is missing), and for what
 * it does not tell (network file systems, targets of links), files are looked at every fallback_ns,
 * or every calm_ns while their directory is watched. */
#ifndef KVR_RELOADER_H
#define KVR_RELOADER_H

#include <stdbool.h>
#include <stdint.h>

#include "error.h"
#include "list.h"
#include "loop.h"

#define KVR_RELOADER_FILES_MAX 256

struct kvr_reloader_options {
    uint64_t quiet_ns;    /* default 20 ms */
    uint64_t hurry_ns;    /* default 60 ms */
    uint64_t fallback_ns; /* default 50 ms */
    uint64_t calm_ns;     /* default 1 s */
    bool poll_only;       /* ask for no watches */
};

struct kvr_reloader_counters {
    uint64_t events;          /* of directories */
    uint64_t reports;         /* on_changed calls */
    uint64_t refused_watches; /* times the system refused to watch a directory that is there */
};

struct kvr_reloader {
    struct kvr_loop *loop;
    struct kvr_reloader_options options; /* defaults filled in */
    struct kvr_reloader_counters counters;
    struct kvr_list files;       /* in the order in which they were added */
    struct kvr_list directories; /* one each, shared by their files */
    uint32_t files_count;
    uint32_t open_handles;   /* closing ones included */
    uint64_t first_event_ns; /* of those not yet looked into; 0: none */
    uv_timer_t settle;       /* runs while events are fresh */
    uv_timer_t poll;
    void *context;
    void (*on_changed)(void *context, const char *path);
    void *closed_context;
    void (*on_closed)(void *context);
    bool reporting;
    bool closing;
};

/* `options` may be NULL. */
void kvr_reloader_init(struct kvr_reloader *reloader, struct kvr_loop *loop,
                       const struct kvr_reloader_options *options, void *context,
                       void (*on_changed)(void *context, const char *path));
/* Add a file before reading it, so that no change falls between the two. It need not exist yet, nor
 * its directory. Adding a path twice makes it count twice: it is
 * watched until it has been removed as often. KVR_E_LIMIT for more than KVR_RELOADER_FILES_MAX. */
int kvr_reloader_add(struct kvr_reloader *reloader, const char *path, struct kvr_error *error);
/* Both may be called from on_changed. A path that is not watched is ignored. */
void kvr_reloader_remove(struct kvr_reloader *reloader, const char *path);
/* Calls back from the loop, after which the memory may go. */
void kvr_reloader_close(struct kvr_reloader *reloader, void *context,
                        void (*on_closed)(void *context));

#endif
