/* The commands of `kvroute ctl` that change the fleet. */
#include <stdio.h>
#include <string.h>
#include <uv.h>

#include "ctl_body.h"
#include "file.h"
#include "pick.h"

#define WAIT_STEP_MS 100

/* A secret may come from a file, so that no list of processes shows it. */
static int put_key(struct kvr_json_writer *json, struct kvr_slice value)
{
    char line[4096];
    if (value.len == 0 || value.data[0] != '@') {
        kvr_json_string(json, "key", value);
        return KVR_CTL_OK;
    }
    struct kvr_error error = {0};
    FILE *file;
    if (kvr_file_open_given(value.data + 1, &file, &error))
        return kvr_ctl_usage("%s", error.text);
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    if (!read)
        return kvr_ctl_usage("cannot read a key from %s", value.data + 1);
    kvr_json_string(json, "key", kvr_slice_make(line, strcspn(line, "\r\n")));
    return KVR_CTL_OK;
}

static void put_models(struct kvr_json_writer *json, const char *names)
{
    kvr_json_array_begin(json, "models");
    while (*names) {
        size_t len = strcspn(names, ",");
        if (len)
            kvr_json_string(json, NULL, kvr_slice_make(names, len));
        names += len + (names[len] == ',');
    }
    kvr_json_array_end(json);
}

int kvr_ctl_run_add(struct kvr_ctl *ctl, int argc, char **argv)
{
    struct kvr_ctl_body body;
    int rc = KVR_CTL_OK;
    kvr_ctl_body_begin(&body);
    kvr_json_text(&body.json, "url", argv[0]);
    for (int i = 1; rc == KVR_CTL_OK && i < argc; i++) {
        char key[128];
        struct kvr_slice value = {0};
        rc = kvr_ctl_split(argv[i], key, sizeof key, &value);
        if (rc)
            break;
        if (strcmp(key, "key") == 0)
            rc = put_key(&body.json, value);
        else if (strcmp(key, "models") == 0)
            put_models(&body.json, value.data);
        else
            kvr_ctl_put_value(&body.json, key, value);
    }
    return kvr_ctl_body_send(&body, rc, ctl, "/admin/replicas", kvr_ctl_show_replica);
}

/* The replica of that name in the list of all; what was removed is there until it is empty. */
static bool find_in_list(struct kvr_slice list, const char *name, struct kvr_slice *replica)
{
    struct kvr_walk walk;
    for (kvr_walk_start(&walk, list, "replicas"); kvr_walk_next(&walk);) {
        *replica = walk.item;
        if (strcmp(kvr_pick_text(walk.item, "name").text, name) == 0)
            return true;
    }
    return false;
}

/* Until nothing is in flight on the replica, which is known by its full name. */
static int wait_until_empty(struct kvr_ctl *ctl, const char *name)
{
    struct kvr_buffer list = {0};
    uint64_t deadline_ns = uv_hrtime() + (uint64_t)(ctl->wait_s * 1e9);
    int rc;
    for (;;) {
        struct kvr_slice replica;
        rc = kvr_ctl_ask(ctl, "GET", "/admin/replicas", kvr_slice_make("", 0), &list);
        if (rc)
            break;
        double left = 0;
        if (find_in_list(kvr_buffer_slice(&list), name, &replica))
            left = kvr_pick_number(replica, "in_flight");
        if (!(left > 0)) {
            if (!ctl->json)
                printf("%s is empty\n", name);
            break;
        }
        if (uv_hrtime() >= deadline_ns) {
            fprintf(stderr, "kvroute ctl: %s still has %.0f in flight after %g s\n", name, left,
                    ctl->wait_s);
            rc = KVR_CTL_REFUSED;
            break;
        }
        uv_sleep(WAIT_STEP_MS);
    }
    kvr_buffer_deinit(&list);
    return rc;
}

static int command_replica(struct kvr_ctl *ctl, const char *path, const char *name)
{
    struct kvr_buffer request = {0}, answer = {0};
    struct kvr_json_writer json = {.out = &request};
    kvr_json_object_begin(&json, NULL);
    kvr_json_text(&json, "replica", name);
    kvr_json_object_end(&json);
    int rc = kvr_ctl_ask(ctl, "POST", path, kvr_buffer_slice(&request), &answer);
    if (rc == KVR_CTL_OK) {
        if (ctl->json)
            kvr_ctl_print_json(kvr_buffer_slice(&answer));
        else
            kvr_ctl_show_replica(kvr_buffer_slice(&answer));
        fflush(stdout);
        if (ctl->wait_s >= 0)
            rc = wait_until_empty(ctl, kvr_pick_text(kvr_buffer_slice(&answer), "name").text);
    }
    kvr_buffer_deinit(&request);
    kvr_buffer_deinit(&answer);
    return rc;
}

int kvr_ctl_run_remove(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc;
    return command_replica(ctl, "/admin/replicas/remove", argv[0]);
}

int kvr_ctl_run_drain(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc;
    return command_replica(ctl, "/admin/replicas/drain", argv[0]);
}

int kvr_ctl_run_restore(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc;
    return command_replica(ctl, "/admin/replicas/restore", argv[0]);
}

int kvr_ctl_run_weight(struct kvr_ctl *ctl, int argc, char **argv)
{
    (void)argc;
    struct kvr_ctl_body body;
    kvr_ctl_body_begin(&body);
    kvr_json_text(&body.json, "replica", argv[0]);
    kvr_ctl_put_value(&body.json, "weight", kvr_slice_of(argv[1]));
    return kvr_ctl_body_send(&body, KVR_CTL_OK, ctl, "/admin/replicas/weight",
                             kvr_ctl_show_replica);
}
