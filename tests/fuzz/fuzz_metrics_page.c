/* Engines' metric pages. Input: a page.
 *
 * Figures are NaN or finite and never negative, whatever the page says; comments and blank lines
 * between its lines change nothing, nor does another kind of line end; nothing is read past its
 * end.
 */
#include "fuzz.h"

#include <math.h>

#include "metrics_page.h"

/* A page is its figures; NaN is equal to itself. */
static struct kvr_buffer understand(struct kvr_slice text)
{
    struct kvr_buffer log = {0};
    struct kvr_metrics_page page;
    kvr_metrics_page_read(&page, text);
    const struct kvr_engine_signals *signals = &page.signals;
    const double figures[] = {
        signals->running,
        signals->waiting,
        signals->kv_usage,
        signals->prefix_hit_tokens,
        signals->generation_tokens,
        signals->prefix_query_tokens,
        signals->prompt_tokens,
        signals->cached_tokens,
        signals->preemptions,
        signals->process_start_s,
        signals->block_size,
        signals->kv_blocks,
        page.signals.prefix_hit_rate,
    };
    kvr_buffer_printf(&log, "%s", kvr_metrics_dialect_name(page.dialect));
    for (size_t i = 0; i < sizeof figures / sizeof *figures; i++) {
        FUZZ_CHECK(isnan(figures[i]) || (isfinite(figures[i]) && figures[i] >= 0));
        kvr_buffer_printf(&log, " %.17g", fabs(figures[i]));
    }
    return log;
}

/* The page with comments between its lines, and CR LF for LF. */
static struct kvr_buffer decorate(struct kvr_slice text)
{
    struct kvr_buffer out = {0};
    kvr_buffer_append_text(&out, "# HELP x y\n\n");
    for (size_t i = 0; i < text.len; i++) {
        if (text.data[i] == '\n')
            kvr_buffer_append_text(&out, "\r\n#\n\r\n\n");
        else
            kvr_buffer_append(&out, &text.data[i], 1);
    }
    kvr_buffer_append_text(&out, "\n# EOF\n");
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct fuzz_input input = {data, size};
    char *bytes = fuzz_rest(&input);
    struct kvr_slice text = {bytes, size};
    struct kvr_buffer plain = understand(text);
    struct kvr_buffer decorated = decorate(text);
    struct kvr_buffer other = understand(kvr_buffer_slice(&decorated));
    fuzz_same(&plain, &other);
    kvr_buffer_deinit(&plain);
    kvr_buffer_deinit(&other);
    kvr_buffer_deinit(&decorated);
    free(bytes);
    return 0;
}
