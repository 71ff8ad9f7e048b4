#include "prom_writer.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "utf8.h"

#define SECONDS_A_US 1e-6

static const char *type_name(enum kvr_prom_type type)
{
    static const char *const names[] = {"counter", "gauge", "histogram"};
    return names[type];
}

static void put_name(struct kvr_prom_writer *prom)
{
    kvr_buffer_append_text(prom->out, prom->prefix);
    kvr_buffer_append_text(prom->out, prom->family);
}

static void put_number(struct kvr_buffer *out, double value)
{
    char text[32];
    if (isinf(value))
        snprintf(text, sizeof text, "%s", value > 0 ? "+Inf" : "-Inf");
    else if (value == floor(value) && fabs(value) < 1e15)
        snprintf(text, sizeof text, "%.0f", value);
    else
        snprintf(text, sizeof text, "%.12g", value);
    kvr_buffer_append_text(out, text);
}

static void put_line(struct kvr_prom_writer *prom, const char *keyword, const char *text)
{
    kvr_buffer_append_text(prom->out, keyword);
    put_name(prom);
    kvr_buffer_append(prom->out, " ", 1);
    kvr_buffer_append_text(prom->out, text);
    kvr_buffer_append(prom->out, "\n", 1);
}

void kvr_prom_family(struct kvr_prom_writer *prom, const char *name, enum kvr_prom_type type,
                     const char *help)
{
    KVR_CHECK(!prom->begun);
    prom->family = name;
    put_line(prom, "# HELP ", help);
    put_line(prom, "# TYPE ", type_name(type));
}

static void begin(struct kvr_prom_writer *prom)
{
    if (!prom->begun)
        put_name(prom);
    prom->begun = true;
}

static void put_escaped(struct kvr_buffer *out, struct kvr_slice value)
{
    if (value.len == 0)
        return;
    size_t start = 0;
    for (size_t i = 0; i < value.len;) {
        unsigned char c = (unsigned char)value.data[i];
        size_t valid = kvr_utf8_length(kvr_slice_make(value.data + i, value.len - i));
        bool control = c < ' ' || c == 0x7f;
        if (valid && !control && c != '"' && c != '\\') {
            i += valid;
            continue;
        }
        kvr_buffer_append(out, value.data + start, i - start);
        if (c == '"' || c == '\\')
            kvr_buffer_append(out, (char[]){'\\', (char)c}, 2);
        else
            kvr_buffer_append_text(out, c == '\n' ? "\\n" : "\xef\xbf\xbd");
        start = ++i;
    }
    kvr_buffer_append(out, value.data + start, value.len - start);
}

void kvr_prom_label(struct kvr_prom_writer *prom, const char *name, struct kvr_slice value)
{
    begin(prom);
    kvr_buffer_append(prom->out, prom->labelled ? "," : "{", 1);
    prom->labelled = true;
    kvr_buffer_append_text(prom->out, name);
    kvr_buffer_append(prom->out, "=\"", 2);
    put_escaped(prom->out, value);
    kvr_buffer_append(prom->out, "\"", 1);
}

/* Everything up to the value. */
static void close_name(struct kvr_prom_writer *prom)
{
    begin(prom);
    kvr_buffer_append_text(prom->out, prom->labelled ? "} " : " ");
    prom->begun = prom->labelled = false;
}

void kvr_prom_uint(struct kvr_prom_writer *prom, uint64_t value)
{
    close_name(prom);
    kvr_buffer_printf(prom->out, "%" PRIu64 "\n", value);
}

void kvr_prom_double(struct kvr_prom_writer *prom, double value)
{
    if (isnan(value)) {
        struct kvr_buffer *out = prom->out;
        while (prom->begun && out->len && out->data[out->len - 1] != '\n')
            out->len--;
        prom->begun = prom->labelled = false;
        return;
    }
    close_name(prom);
    put_number(prom->out, value);
    kvr_buffer_append(prom->out, "\n", 1);
}

void kvr_prom_counter(struct kvr_prom_writer *prom, const char *name, uint64_t value,
                      const char *help)
{
    kvr_prom_family(prom, name, KVR_PROM_COUNTER, help);
    kvr_prom_uint(prom, value);
}

void kvr_prom_gauge(struct kvr_prom_writer *prom, const char *name, double value, const char *help)
{
    kvr_prom_family(prom, name, KVR_PROM_GAUGE, help);
    kvr_prom_double(prom, value);
}

static void put_bucket(struct kvr_prom_writer *prom, double bound_s, uint64_t count)
{
    put_name(prom);
    kvr_buffer_append_text(prom->out, "_bucket{le=\"");
    put_number(prom->out, bound_s);
    kvr_buffer_printf(prom->out, "\"} %" PRIu64 "\n", count);
}

void kvr_prom_histogram_us(struct kvr_prom_writer *prom, const char *name,
                           const struct kvr_histogram *histogram, const uint32_t *bounds_us,
                           uint32_t bounds, const char *help)
{
    kvr_prom_family(prom, name, KVR_PROM_HISTOGRAM, help);
    for (uint32_t i = 0; i < bounds; i++) {
        KVR_CHECK(bounds_us[i] > (i ? bounds_us[i - 1] : 0));
        put_bucket(prom, bounds_us[i] * SECONDS_A_US,
                   kvr_histogram_count_le(histogram, bounds_us[i] - 1));
    }
    put_bucket(prom, (double)INFINITY, histogram->count);
    put_name(prom);
    kvr_buffer_append_text(prom->out, "_sum ");
    put_number(prom->out, (double)histogram->sum * SECONDS_A_US);
    kvr_buffer_append(prom->out, "\n", 1);
    put_name(prom);
    kvr_buffer_printf(prom->out, "_count %" PRIu64 "\n", histogram->count);
}
