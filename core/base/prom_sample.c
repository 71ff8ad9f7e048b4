#include "prom_sample.h"

#include <math.h>
#include <stddef.h>

#include "json_number.h"

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\r';
}

/* The number at the start of `text`. What follows it (a time, an exemplar) is not looked at. */
static double read_number(struct kvr_slice text)
{
    while (text.len && is_blank(*text.data)) {
        text.data++;
        text.len--;
    }
    if (text.len && *text.data == '+') {
        text.data++;
        text.len--;
    }
    const char *at = text.data;
    const char *end = text.data + text.len;
    if (text.len == 0 || !kvr_json_number_scan(&at, end) || (at < end && !is_blank(*at)))
        return (double)NAN;
    double value = kvr_json_number_value(kvr_slice_make(text.data, (size_t)(at - text.data)));
    return isfinite(value) ? value : (double)NAN;
}

/* The quote that ends the label value at `at`. NULL: none. */
static const char *string_end(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (*at == '"')
            return at;
        if (*at == '\\' && at + 1 < end)
            at++;
    }
    return NULL;
}

/* The end of a label set: the brace that is not inside a quoted value. NULL: none. */
static const char *labels_end(const char *at, const char *end)
{
    for (; at < end; at++) {
        if (*at == '}')
            return at;
        if (*at == '"')
            at = string_end(at + 1, end);
        if (!at)
            return NULL;
    }
    return NULL;
}

bool kvr_prom_sample_read(struct kvr_prom_sample *sample, struct kvr_slice line)
{
    if (line.len == 0 || *line.data == '#')
        return false;
    const char *at = line.data;
    const char *end = line.data + line.len;
    while (at < end && !is_blank(*at) && *at != '{')
        at++;
    sample->name = kvr_slice_make(line.data, (size_t)(at - line.data));
    sample->labels = kvr_slice_make(at, 0);
    if (at < end && *at == '{') {
        const char *close = labels_end(at + 1, end);
        if (!close)
            return false;
        sample->labels = kvr_slice_make(at + 1, (size_t)(close - at - 1));
        at = close + 1;
    }
    while (at < end && is_blank(*at))
        at++;
    if (at >= end || sample->name.len == 0)
        return false;
    sample->value = read_number(kvr_slice_make(at, (size_t)(end - at)));
    return true;
}

bool kvr_prom_find_label(struct kvr_slice labels, const char *name, struct kvr_slice *value)
{
    const char *at = labels.data;
    const char *end = labels.data + labels.len;
    while (at < end) {
        const char *name_at = at;
        while (at < end && *at != '=')
            at++;
        struct kvr_slice found = kvr_slice_trim(kvr_slice_make(name_at, (size_t)(at - name_at)));
        while (at < end && *at != '"')
            at++;
        if (at == end)
            return false;
        const char *value_at = ++at;
        at = string_end(at, end);
        if (!at)
            return false;
        if (kvr_slice_is(found, name)) {
            *value = kvr_slice_make(value_at, (size_t)(at - value_at));
            return true;
        }
        at++;
        while (at < end && (*at == ',' || is_blank(*at)))
            at++;
    }
    return false;
}

double kvr_prom_label_number(struct kvr_slice labels, const char *name)
{
    struct kvr_slice value;
    return kvr_prom_find_label(labels, name, &value) ? read_number(value) : (double)NAN;
}
