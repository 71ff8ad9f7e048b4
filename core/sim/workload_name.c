/* The name of a workload: whatever its requests depend on, in one line of text. */
#include "prompt.h"
#include "workload_parts.h"

/* Numbers so that they read back to the same. */
#define N "%.15g"

static uint64_t hash_of_times(const struct kvr_workload *workload)
{
    return kvr_prompt_hash(kvr_slice_make((const char *)workload->times_ms,
                                          workload->options.times_len * sizeof(double)),
                           0);
}

static uint64_t hash_of_list(const struct kvr_request_list *list)
{
    uint64_t hash = kvr_prompt_hash(
        kvr_slice_make((const char *)list->pieces, list->pieces_len * sizeof *list->pieces), 0);
    for (uint64_t i = 0; i < list->rows_len; i++) {
        const struct kvr_list_request *r = &list->rows[i].request;
        const double times[] = {r->due_ms, r->think_ms};
        const uint64_t words[] = {r->session,    r->key,          r->tenant,       r->pieces_len,
                                  r->max_tokens, r->session_turn, r->output_tokens};
        hash = kvr_prompt_hash(kvr_slice_make((const char *)times, sizeof times), hash);
        hash = kvr_prompt_hash(kvr_slice_make((const char *)words, sizeof words), hash);
    }
    return hash;
}

static void name_requests(struct kvr_workload *workload, struct kvr_buffer *out)
{
    const struct kvr_workload_options *o = &workload->options;
    switch (o->kind) {
    case KVR_WORKLOAD_SESSIONS:
        kvr_buffer_printf(out, "sessions(n=%u,skew=" N ",turns=%u,user=%u,assistant=%u,",
                          o->sessions, o->skew, o->turns, o->user_bytes, o->assistant_bytes);
        kvr_buffer_printf(out, "system=" N "x%u,branch=" N "x%u*%u,output=%u,early=" N ",",
                          o->system_share, o->system_bytes, o->branch_share, o->branch_families,
                          o->branch_turns, o->max_tokens, o->early_share);
        break;
    case KVR_WORKLOAD_KEYS:
        kvr_buffer_printf(out, "keys(n=%u,template=" N ",context=" N ",variant=" N "x%u,", o->keys,
                          o->template_tokens, o->context_tokens, o->variant_tokens, o->variants);
        kvr_buffer_printf(
            out, "unique=" N "~" N ",output=%u~" N "<=%u,weights=%016llx,bpt=" N ",",
            o->unique_tokens, o->unique_spread, o->output_tokens, o->output_cv, o->output_max,
            (unsigned long long)kvr_prompt_hash(
                kvr_slice_make((const char *)workload->popularity.upto, o->keys * sizeof(double)),
                0),
            o->bytes_per_token);
        if (o->drift_sigma > 0)
            kvr_buffer_printf(out, "drift=" N "/" N ",", o->drift_sigma, o->drift_requests);
        if (o->length_sigma > 0)
            kvr_buffer_printf(out, "length=" N ",", o->length_sigma);
        if (o->thread_more > 0)
            kvr_buffer_printf(out, "threads=" N "/" N "~" N ",", o->thread_more, o->thread_end,
                              o->thread_gap_ms);
        break;
    default:
        kvr_buffer_printf(out, "list(n=%llu,hash=%016llx,",
                          (unsigned long long)workload->list.rows_len,
                          (unsigned long long)hash_of_list(&workload->list));
        break;
    }
    kvr_buffer_printf(out, "seed=%llu", (unsigned long long)o->seed);
    if (o->epoch)
        kvr_buffer_printf(out, ",epoch=%llu", (unsigned long long)o->epoch);
    kvr_buffer_append_text(out, ")");
}

static void name_arrivals(const struct kvr_workload *workload, struct kvr_buffer *out)
{
    const struct kvr_workload_options *o = &workload->options;
    switch (o->arrivals) {
    case KVR_ARRIVALS_CLOSED:
        kvr_buffer_printf(out, "+closed(users=%llu,think=" N "~" N ",start=" N ",scale=" N ")",
                          (unsigned long long)kvr_workload_users(workload), o->think_ms,
                          o->think_cv, o->start_ms, o->time_scale);
        return;
    case KVR_ARRIVALS_RATE:
        kvr_buffer_printf(out, "+rate(" N ",cv=" N ",pool=" N, o->rate, o->gap_cv, o->pool_s);
        if (o->rate_end > 0)
            kvr_buffer_printf(out, ",to=" N ",within=" N, o->rate_end, o->ramp_ms);
        kvr_buffer_append_text(out, ")");
        return;
    default:
        kvr_buffer_printf(out, "+%s(", o->arrivals == KVR_ARRIVALS_TIMES ? "times" : "bootstrap");
        if (o->times_len)
            kvr_buffer_printf(out, "hash=%016llx,", (unsigned long long)hash_of_times(workload));
        kvr_buffer_printf(out, "scale=" N ",rate=" N ",block=%u,pool=" N ")", o->time_scale,
                          o->rate, o->block_len, o->pool_s);
    }
}

const char *kvr_workload_name(struct kvr_workload *workload)
{
    struct kvr_buffer *name = &workload->name;
    name->len = 0;
    name_requests(workload, name);
    name_arrivals(workload, name);
    kvr_buffer_append(name, "", 1);
    return name->data;
}
