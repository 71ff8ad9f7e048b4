#include "script_file.h"

#include <stdio.h>
#include <string.h>

#include "file.h"
#include "script_names.h"

bool kvr_script_file_is_name(struct kvr_slice name)
{
    if (name.len == 0 || name.len >= KVR_SCRIPT_NAME_MAX)
        return false;
    for (size_t i = 0; i < name.len; i++) {
        char c = name.data[i];
        if (!(c == '_' || c == '-' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
              (c >= 'A' && c <= 'Z')))
            return false;
    }
    return true;
}

struct kvr_slice kvr_script_file_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    struct kvr_slice name = kvr_slice_of(slash ? slash + 1 : path);
    if (name.len > 4 && strcmp(name.data + name.len - 4, ".lua") == 0)
        name.len -= 4;
    return kvr_script_file_is_name(name) ? name : kvr_slice_of("");
}

int kvr_script_file_path(const char *dir, enum kvr_script_role role, struct kvr_slice name,
                         char *path, struct kvr_error *error)
{
    int len = (int)name.len;
    int size;
    if (memchr(name.data, '/', name.len))
        size = snprintf(path, KVR_SCRIPT_PATH_MAX, "%.*s", len, name.data);
    else if (kvr_script_file_is_name(name))
        size = snprintf(path, KVR_SCRIPT_PATH_MAX, "%s/%s%.*s.lua", dir,
                        kvr_role_kind(role) == KVR_SCRIPT_SPILL ? "spill/" : "", len, name.data);
    else
        return kvr_error_set(error, KVR_E_INVALID, "\"%.*s\" is neither a name nor a path of a %s",
                             len, name.data, kvr_role_name(role));
    if (size >= KVR_SCRIPT_PATH_MAX)
        return kvr_error_set(error, KVR_E_INVALID, "path of \"%.*s\" is too long", len, name.data);
    return 0;
}

int kvr_script_file_read(const char *path, struct kvr_buffer *text, struct kvr_error *error)
{
    return kvr_file_read(path, KVR_SCRIPT_FILE_MAX, text, error);
}

int kvr_script_file_find(const char *dir, enum kvr_script_kind kind, struct kvr_slice name,
                         const char *path, struct kvr_buffer *text, struct kvr_error *error)
{
    char known[KVR_SCRIPT_NAME_MAX];
    int rc = kvr_script_file_read(path, text, error);
    if (rc != KVR_E_NOT_FOUND || !kvr_script_file_is_name(name))
        return rc;
    snprintf(known, sizeof known, "%.*s", (int)name.len, name.data);
    return kvr_script_names_miss(dir, kind, known, error);
}
