#include "ctl_body.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "json_number.h"

int kvr_ctl_usage(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("kvroute ctl: ", stderr);
    vfprintf(stderr, format, arguments);
    fputs("\n", stderr);
    va_end(arguments);
    return KVR_CTL_USAGE;
}

void kvr_ctl_print_json(struct kvr_slice answer)
{
    printf("%.*s\n", (int)answer.len, answer.data);
}

void kvr_ctl_put_file(struct kvr_json_writer *json, const char *file)
{
    char folder[PATH_MAX], path[2 * PATH_MAX];
    const char *rest = strncmp(file, "./", 2) == 0 ? file + 2 : file;
    if (file[0] != '/' && getcwd(folder, sizeof folder) &&
        snprintf(path, sizeof path, "%s/%s", folder, rest) < (int)sizeof path)
        file = path;
    kvr_json_text(json, "file", file);
}

int kvr_ctl_do(struct kvr_ctl *ctl, const char *method, const char *path, struct kvr_slice request,
               void (*people)(struct kvr_slice answer))
{
    struct kvr_buffer answer = {0};
    int rc = kvr_ctl_ask(ctl, method, path, request, &answer);
    if (rc == KVR_CTL_OK && ctl->json)
        kvr_ctl_print_json(kvr_buffer_slice(&answer));
    else if (rc == KVR_CTL_OK)
        people(kvr_buffer_slice(&answer));
    kvr_buffer_deinit(&answer);
    return rc;
}

int kvr_ctl_look(struct kvr_ctl *ctl, const char *path, void (*people)(struct kvr_slice answer))
{
    return kvr_ctl_do(ctl, "GET", path, kvr_slice_make("", 0), people);
}

void kvr_ctl_put_value(struct kvr_json_writer *json, const char *key, struct kvr_slice value)
{
    const char *at = value.data;
    const char *end = value.data + value.len;
    bool number = value.len && kvr_json_number_scan(&at, end) && at == end;
    if (number || kvr_slice_is(value, "true") || kvr_slice_is(value, "false"))
        kvr_json_raw(json, key, value);
    else
        kvr_json_string(json, key, value);
}

int kvr_ctl_split(const char *argument, char *key, size_t room, struct kvr_slice *value)
{
    const char *equals = strchr(argument, '=');
    if (!equals || equals == argument || (size_t)(equals - argument) >= room)
        return kvr_ctl_usage("\"%s\" is not KEY=VALUE", argument);
    snprintf(key, room, "%.*s", (int)(equals - argument), argument);
    *value = kvr_slice_of(equals + 1);
    return KVR_CTL_OK;
}

int kvr_ctl_put_params(struct kvr_json_writer *json, int argc, char **argv)
{
    if (argc == 0)
        return KVR_CTL_OK;
    kvr_json_object_begin(json, "params");
    for (int i = 0; i < argc; i++) {
        char key[128];
        struct kvr_slice value = {0};
        int rc = kvr_ctl_split(argv[i], key, sizeof key, &value);
        if (rc)
            return rc;
        kvr_json_string(json, key, value);
    }
    kvr_json_object_end(json);
    return KVR_CTL_OK;
}

void kvr_ctl_put_script(struct kvr_json_writer *json, const char *name)
{
    char folder[PATH_MAX], path[2 * PATH_MAX];
    const char *rest = strncmp(name, "./", 2) == 0 ? name + 2 : name;
    bool relative = strchr(name, '/') && name[0] != '/';
    if (relative && getcwd(folder, sizeof folder) &&
        snprintf(path, sizeof path, "%s/%s", folder, rest) < (int)sizeof path)
        name = path;
    kvr_json_text(json, "name", name);
}

void kvr_ctl_body_begin(struct kvr_ctl_body *body)
{
    *body = (struct kvr_ctl_body){0};
    body->json.out = &body->text;
    kvr_json_object_begin(&body->json, NULL);
}

int kvr_ctl_body_send(struct kvr_ctl_body *body, int rc, struct kvr_ctl *ctl, const char *path,
                      void (*people)(struct kvr_slice answer))
{
    kvr_json_object_end(&body->json);
    if (rc == KVR_CTL_OK)
        rc = kvr_ctl_do(ctl, "POST", path, kvr_buffer_slice(&body->text), people);
    kvr_buffer_deinit(&body->text);
    return rc;
}
