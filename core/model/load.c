#include "load.h"

#include <string.h>

#define MIN_QUERY_TOKENS 1600 /* 100 blocks of 16: below it a window's rate says nothing */

struct kvr_engine_signals kvr_engine_signals_unread(void)
{
    struct kvr_engine_signals signals;
    double *fields = (double *)&signals;
    for (size_t i = 0; i < sizeof signals / sizeof *fields; i++)
        fields[i] = (double)NAN;
    return signals;
}

void kvr_load_init(struct kvr_load *load)
{
    memset(load, 0, sizeof *load);
    kvr_ewma_init(&load->ttft_ms);
    kvr_ewma_init(&load->error_rate);
    kvr_ewma_init(&load->prefill_tokens_per_s);
    kvr_ewma_init(&load->output_tokens);
    kvr_ewma_init(&load->token_ms);
    load->signals = kvr_engine_signals_unread();
    load->hit_rate = (double)NAN;
    load->window_hit_tokens = (double)NAN;
    load->window_query_tokens = (double)NAN;
}

/* Comparisons with NaN are false: what was unread or is unread went nowhere. */
static bool went_back(double before, double now)
{
    return now < before;
}

static bool restarted(const struct kvr_engine_signals *before, const struct kvr_engine_signals *now)
{
    return now->process_start_s > before->process_start_s + 0.5 ||
           went_back(before->prompt_tokens, now->prompt_tokens) ||
           went_back(before->generation_tokens, now->generation_tokens) ||
           went_back(before->prefix_query_tokens, now->prefix_query_tokens);
}

static void move_window(struct kvr_load *load, uint64_t now_ns)
{
    load->window_hit_tokens = load->signals.prefix_hit_tokens;
    load->window_query_tokens = load->signals.prefix_query_tokens;
    load->window_ns = now_ns;
}

bool kvr_load_read_signals(struct kvr_load *load, const struct kvr_engine_signals *signals,
                           uint64_t now_ns, uint64_t window_ns)
{
    bool is_new = load->signals_ns != 0 && restarted(&load->signals, signals);
    load->signals = *signals;
    load->signals_ns = now_ns;
    if (isnan(signals->prefix_query_tokens)) {
        load->hit_rate = signals->prefix_hit_rate;
        move_window(load, now_ns);
        return is_new;
    }
    if (is_new || isnan(load->window_query_tokens)) {
        load->hit_rate = (double)NAN;
        move_window(load, now_ns);
        return is_new;
    }
    double queries = signals->prefix_query_tokens - load->window_query_tokens;
    double hits = signals->prefix_hit_tokens - load->window_hit_tokens;
    if (queries >= MIN_QUERY_TOKENS)
        load->hit_rate = hits / queries;
    if (now_ns - load->window_ns >= window_ns) {
        if (!(queries >= MIN_QUERY_TOKENS))
            load->hit_rate = (double)NAN;
        move_window(load, now_ns);
    }
    return false;
}
