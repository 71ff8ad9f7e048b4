#include "reason.h"

#include "check.h"

enum { REASON_NONE, REASON_OTHER };

static char texts[KVR_REASONS_MAX][KVR_REASON_LEN_MAX + 1] = {"none", "other"};
static uint16_t count = 2;

/* Reasons become metric labels and header values: nothing else may come through. */
static size_t clean(struct kvr_slice text, char *out)
{
    size_t len = text.len < KVR_REASON_LEN_MAX ? text.len : KVR_REASON_LEN_MAX;
    for (size_t i = 0; i < len; i++) {
        char c = text.data[i];
        bool good = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
        out[i] = good ? c : '_';
    }
    out[len] = '\0';
    return len;
}

uint16_t kvr_reason_intern(struct kvr_slice text)
{
    char name[KVR_REASON_LEN_MAX + 1] = "";
    if (clean(text, name) == 0)
        return REASON_NONE;
    for (uint16_t i = 0; i < count; i++)
        if (strcmp(texts[i], name) == 0)
            return i;
    if (count == KVR_REASONS_MAX)
        return REASON_OTHER;
    memcpy(texts[count], name, sizeof name);
    return count++;
}

const char *kvr_reason_text(uint16_t reason)
{
    KVR_CHECK(reason < count);
    return texts[reason];
}

uint16_t kvr_reason_count(void)
{
    return count;
}
