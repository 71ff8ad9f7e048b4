#include "profile_option.h"

#include <string.h>

#include "buffer.h"
#include "file.h"
#include "profile_text.h"

#define FILE_BYTES_MAX (1u << 20)

static int refuse_name(const char *value, struct kvr_error *error)
{
    struct kvr_buffer names = {0};
    const struct kvr_profile *profile;
    for (size_t i = 0; (profile = kvr_profile_at(i)); i++)
        kvr_buffer_printf(&names, "%s%s", i ? ", " : "", profile->name);
    int code =
        kvr_error_set(error, KVR_E_NOT_FOUND,
                      "there is no profile \"%s\"; there are %.*s, or the path of a .lua file",
                      value, (int)names.len, names.data);
    kvr_buffer_deinit(&names);
    return code;
}

int kvr_profile_option(const char *value, struct kvr_profile *profile, struct kvr_error *error)
{
    size_t len = strlen(value);
    bool is_path = strchr(value, '/') || (len > 4 && strcmp(value + len - 4, ".lua") == 0);
    if (!is_path) {
        const struct kvr_profile *found = kvr_profile_find(kvr_slice_of(value));
        if (!found)
            return refuse_name(value, error);
        *profile = *found;
        return KVR_OK;
    }
    struct kvr_buffer text = {0};
    int code = kvr_file_read_given(value, FILE_BYTES_MAX, &text, error);
    if (code == 0)
        code = kvr_profile_text_read(value, kvr_buffer_slice(&text), profile, error);
    kvr_buffer_deinit(&text);
    return code;
}
