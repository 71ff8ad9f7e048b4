/* The bodies of `kvroute ctl`'s requests, made of its arguments, and what is common to sending
 * them: show the answer, or say what is wrong. */
#ifndef KVR_CTL_BODY_H
#define KVR_CTL_BODY_H

#include "check.h"
#include "ctl.h"
#include "json_writer.h"

/* A body under way: an object that is open. */
struct kvr_ctl_body {
    struct kvr_buffer text;
    struct kvr_json_writer json;
};

void kvr_ctl_body_begin(struct kvr_ctl_body *body);
/* With `rc` KVR_CTL_OK: sends it and shows the answer. Frees it in any case. */
int kvr_ctl_body_send(struct kvr_ctl_body *body, int rc, struct kvr_ctl *ctl, const char *path,
                      void (*people)(struct kvr_slice answer));

/* Splits "k=v". */
int kvr_ctl_split(const char *argument, char *key, size_t room, struct kvr_slice *value);
/* A number or a truth as it stands, anything else as text. */
void kvr_ctl_put_value(struct kvr_json_writer *json, const char *key, struct kvr_slice value);
/* "params": {...}; nothing when there are none. Scripts know the kinds: all go as text. */
int kvr_ctl_put_params(struct kvr_json_writer *json, int argc, char **argv);

/* "name": a script as the router may find it: a path that begins in this folder is made absolute,
 * for the router runs in another. */
void kvr_ctl_put_script(struct kvr_json_writer *json, const char *name);

/* "file": a path, made absolute in the same way. */
void kvr_ctl_put_file(struct kvr_json_writer *json, const char *file);

/* Asks and shows: to people, or with --json as it is. */
int kvr_ctl_do(struct kvr_ctl *ctl, const char *method, const char *path, struct kvr_slice request,
               void (*people)(struct kvr_slice answer));
int kvr_ctl_look(struct kvr_ctl *ctl, const char *path, void (*people)(struct kvr_slice answer));
void kvr_ctl_print_json(struct kvr_slice answer);
/* Says what is wrong with the command line; returns KVR_CTL_USAGE. */
int kvr_ctl_usage(const char *format, ...) KVR_PRINTF(1, 2);

#endif
