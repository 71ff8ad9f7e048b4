#include "script_names.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "memory.h"
#include "script_file.h"

#define FAR 3 /* a name that differs in so many letters is another one */

static int by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* The editor's annotations lie beside the policies, and are none. */
static bool is_script(struct kvr_slice name)
{
    return kvr_script_file_is_name(name) && !kvr_slice_is(name, "types");
}

void kvr_script_names_read(struct kvr_script_names *names, const char *dir,
                           enum kvr_script_kind kind)
{
    char path[KVR_SCRIPT_PATH_MAX + 8];
    names->count = 0;
    snprintf(path, sizeof path, "%s%s", dir, kind == KVR_SCRIPT_SPILL ? "/spill" : "");
    DIR *folder = opendir(path);
    if (!folder)
        return;
    for (struct dirent *entry; names->count < KVR_SCRIPT_NAMES_MAX && (entry = readdir(folder));) {
        size_t len = strlen(entry->d_name);
        if (len <= 4 || strcmp(entry->d_name + len - 4, ".lua") != 0)
            continue;
        struct kvr_slice name = kvr_slice_make(entry->d_name, len - 4);
        if (is_script(name))
            snprintf(names->list[names->count++], KVR_SCRIPT_NAME_MAX, "%.*s", (int)name.len,
                     name.data);
    }
    closedir(folder);
    qsort(names->list, names->count, sizeof names->list[0], by_text);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

/* Levenshtein's distance of two names, whose case does not count. */
static uint32_t distance(const char *a, const char *b)
{
    uint32_t row[KVR_SCRIPT_NAME_MAX + 1];
    uint32_t columns = (uint32_t)strlen(b);
    for (uint32_t j = 0; j <= columns; j++)
        row[j] = j;
    for (uint32_t i = 1; a[i - 1]; i++) {
        uint32_t diagonal = row[0];
        row[0] = i;
        for (uint32_t j = 1; j <= columns; j++) {
            uint32_t swap = diagonal + (lower(a[i - 1]) != lower(b[j - 1]));
            uint32_t drop = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;
            diagonal = row[j];
            row[j] = swap < drop ? swap : drop;
        }
    }
    return row[columns];
}

/* NULL when none is near. */
static const char *nearest(const struct kvr_script_names *names, const char *name)
{
    uint32_t least = FAR;
    const char *best = NULL;
    for (uint32_t i = 0; i < names->count; i++) {
        uint32_t d = distance(name, names->list[i]);
        if (d < least && d < strlen(name)) {
            least = d;
            best = names->list[i];
        }
    }
    return best;
}

static bool has(const struct kvr_script_names *names, const char *name)
{
    return bsearch(name, names->list, names->count, sizeof names->list[0], by_text) != NULL;
}

/* "a, b, c"; "..." for what has no room. */
static void put_list(const struct kvr_script_names *names, char *out, size_t room)
{
    size_t len = 0;
    snprintf(out, room, "%s", names->count ? "" : "none");
    for (uint32_t i = 0; i < names->count; i++) {
        if (len + strlen(names->list[i]) + 8 > room) {
            snprintf(out + len, room - len, ", ...");
            return;
        }
        len += (size_t)snprintf(out + len, room - len, "%s%s", len ? ", " : "", names->list[i]);
    }
}

int kvr_script_names_miss(const char *dir, enum kvr_script_kind kind, const char *name,
                          struct kvr_error *error)
{
    static const char *const kinds[] = {"policy", "spill rule"};
    bool spill = kind == KVR_SCRIPT_SPILL;
    enum kvr_script_kind other = spill ? KVR_SCRIPT_POLICY : KVR_SCRIPT_SPILL;
    struct kvr_script_names *names = kvr_alloc(sizeof *names);
    char hint[384];
    kvr_script_names_read(names, dir, other);
    bool is_other = has(names, name);
    kvr_script_names_read(names, dir, kind);
    const char *near = nearest(names, name);
    if (is_other)
        snprintf(hint, sizeof hint, "that is a %s", kinds[other]);
    else if (near)
        snprintf(hint, sizeof hint, "did you mean %s?", near);
    else
        put_list(names, hint + snprintf(hint, sizeof hint, "known: "), sizeof hint - 10);
    kvr_free(names);
    return kvr_error_set(error, KVR_E_NOT_FOUND, "there is no %s %s: %s", kinds[spill], name, hint);
}
