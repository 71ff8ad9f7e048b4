#include "workload.h"

#include <math.h>
#include <string.h>

#include "memory.h"
#include "real.h"
#include "workload_parts.h"

/* The study: five cards of 7,872 blocks of 16 tokens, 32 users who never pause. */
void kvr_workload_defaults(struct kvr_workload_options *options)
{
    *options = (struct kvr_workload_options){
        .seed = 1,
        .kind = KVR_WORKLOAD_SESSIONS,
        .arrivals = KVR_ARRIVALS_CLOSED,
        .bytes_per_token = 1.59,
        .users = 32,
        .think_ms = 1,
        .pool_s = 5,
        .time_scale = 1,
        .turns = 4,
        .working_set = 1,
        .capacity_tokens = 629760,
        .user_bytes = 1792,
        .assistant_bytes = 256,
        .system_bytes = 512,
        .system_share = 0.3,
        .branch_share = 0.3,
        .branch_families = 8,
        .branch_turns = 1,
        .max_tokens = 64,
        .early_share = 0.2,
        .keys = 128,
        .template_tokens = 4400,
        .context_tokens = 180,
        .variant_tokens = 2400,
        .variants = 42,
        .unique_tokens = 400,
        .unique_spread = 0.5,
        .weight_shift = 20,
        .weight_power = 0.85,
        .weight_sigma = 1.6476,
        .weight_cap = 0.0029,
        .thread_end = 0.3,
        .thread_gap_ms = 30000,
        .output_tokens = 48,
    };
}

struct range {
    const char *field;
    double value, low, high;
};

static int check(const struct kvr_workload_options *o, struct kvr_error *error)
{
    bool closed = o->arrivals == KVR_ARRIVALS_CLOSED;
    bool sessions = o->kind == KVR_WORKLOAD_SESSIONS, keys = o->kind == KVR_WORKLOAD_KEYS;
    bool threads = o->thread_more > 0;
    double begun_before = kvr_threads_before_ms(o) / 1e3 * o->rate / kvr_threads_mean(o);
    const struct range ranges[] = {
        {"kind", o->kind, KVR_WORKLOAD_SESSIONS, KVR_WORKLOAD_LIST},
        {"arrivals", o->arrivals, KVR_ARRIVALS_CLOSED, KVR_ARRIVALS_BOOTSTRAP},
        {"bytes_per_token", o->bytes_per_token, 1, 64},
        {"users", o->users, closed && o->kind != KVR_WORKLOAD_LIST, 1e6},
        {"think_ms", o->think_ms, 0, 1e9},
        {"think_cv", o->think_cv, 0, 10},
        {"start_ms", o->start_ms, 0, 1e9},
        {"rate", o->rate, o->arrivals == KVR_ARRIVALS_RATE ? 1e-6 : 0, 1e6},
        {"gap_cv", o->gap_cv, 0, 10},
        {"rate_end", o->rate_end, 0, threads ? 0 : 1e6},
        {"ramp_ms", o->ramp_ms, o->rate_end > 0 ? 1e-3 : 0, 1e12},
        {"pool_s", o->pool_s, 0, 1e6},
        {"time_scale", o->time_scale, 1e-6, 1e6},
        {"working_set", o->working_set, sessions && !o->sessions ? 1e-6 : 0, 1e6},
        {"capacity_tokens", o->capacity_tokens, 0, 1e15},
        {"sessions", o->sessions, 0, 1e8},
        {"turns", o->turns, sessions, 1024},
        {"skew", o->skew, 0, 10},
        {"user_bytes", o->user_bytes, sessions, 1e7},
        {"assistant_bytes", o->assistant_bytes, 0, 1e7},
        {"system_bytes", o->system_bytes, 0, 1e7},
        {"system_share", o->system_share, 0, 1},
        {"branch_share", o->branch_share, 0, 1},
        {"max_tokens", o->max_tokens, sessions, 1e7},
        {"early_share", o->early_share, 0, 1},
        {"keys", o->keys, keys && !o->weights_len, 1e8},
        {"template_tokens", o->template_tokens, 0, 1e7},
        {"context_tokens", o->context_tokens, 0, 1e7},
        {"variant_tokens", o->variant_tokens, 0, 1e7},
        {"whales", o->whales, 0, o->weights_len ? 0 : o->keys},
        {"whale_share", o->whale_share, 0, 1},
        {"unique_tokens", o->unique_tokens, 0, 1e7},
        {"unique_spread", o->unique_spread, 0, 1},
        {"weight_shift", o->weight_shift, -0.999, 1e9},
        {"weight_power", o->weight_power, 0, 100},
        {"population", o->population, o->population ? o->keys : 0, o->weights_len ? 0 : 1e8},
        {"weight_sigma", o->weight_sigma, 0, 10},
        {"weight_cap", o->weight_cap, o->population ? 1.0 / o->population : 0, 1},
        {"drift_sigma", o->drift_sigma, 0, threads ? 0 : 10},
        {"drift_requests", o->drift_requests, o->drift_sigma > 0 ? 1 : 0, 1e15},
        {"length_sigma", o->length_sigma, 0, 3},
        {"thread_more", o->thread_more, 0, keys && o->arrivals == KVR_ARRIVALS_RATE},
        {"thread_end", o->thread_end, threads ? 0.01 : 0, 1},
        {"thread_gap_ms", o->thread_gap_ms, threads ? 1e-3 : 0, 1e9},
        {"number of threads before the start", begun_before, 0, 1e7},
        {"output_tokens", o->output_tokens, keys, 1e7},
        {"output_cv", o->output_cv, 0, 10},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        /* Written so that NaN fails. */
        if (!(ranges[i].value >= ranges[i].low && ranges[i].value <= ranges[i].high))
            return kvr_error_set(error, KVR_E_INVALID,
                                 "workload: %s is %g, must be between %g and %g", ranges[i].field,
                                 ranges[i].value, ranges[i].low, ranges[i].high);
    return KVR_OK;
}

static int check_times(const struct kvr_workload_options *o, struct kvr_error *error)
{
    for (uint64_t i = 0; i < o->times_len; i++)
        if (!(o->times_ms[i] >= (i ? o->times_ms[i - 1] : 0)))
            return kvr_error_set(error, KVR_E_INVALID,
                                 "workload: times_ms[%llu] is %g, before the one before",
                                 (unsigned long long)i, o->times_ms[i]);
    /* Blocks of a recording that takes no time would never end. */
    bool bootstrap = o->arrivals == KVR_ARRIVALS_BOOTSTRAP && o->kind != KVR_WORKLOAD_LIST;
    if (bootstrap && (o->times_len < 2 || o->times_ms[0] >= o->times_ms[o->times_len - 1]))
        return kvr_error_set(error, KVR_E_INVALID,
                             "workload: bootstrap needs times_ms, of different times");
    return KVR_OK;
}

/* Something must be drawn: a total that is none, or too small or large for a double, is refused. */
static int check_weights(const struct kvr_workload_options *o, struct kvr_error *error)
{
    if (o->kind != KVR_WORKLOAD_KEYS)
        return KVR_OK;
    double total = 0;
    for (uint32_t i = 0; i < o->weights_len; i++) {
        if (!(o->weights[i] >= 0))
            return kvr_error_set(error, KVR_E_INVALID, "workload: weights[%u] is %g", i,
                                 o->weights[i]);
        total += o->weights[i];
    }
    if (!o->weights_len)
        total = kvr_real_pow(1 + o->weight_shift, -o->weight_power);
    if (!(total > 0 && total < INFINITY))
        return kvr_error_set(error, KVR_E_INVALID, "workload: the weights of all keys make %g",
                             total);
    if (o->whales && o->whales == o->keys && !(o->whale_share > 0))
        return kvr_error_set(error, KVR_E_INVALID, "workload: all keys are whales and share none");
    return KVR_OK;
}

static void derive(struct kvr_workload_options *o)
{
    if (o->kind == KVR_WORKLOAD_SESSIONS && o->sessions == 0) {
        /* In the nominal tokens of the study, four bytes each. */
        double tokens = o->turns * (o->user_bytes / 4.0 + o->assistant_bytes / 4.0);
        double sessions = floor(o->working_set * o->capacity_tokens / tokens);
        o->sessions = sessions < 1 ? 1 : sessions > 1e8 ? 100000000 : (uint32_t)sessions;
    }
    if (o->weights_len)
        o->keys = o->weights_len;
    if (o->output_max == 0)
        o->output_max = 16 * o->output_tokens;
}

static void weigh_by_law(const struct kvr_workload_options *o, struct kvr_popularity *law)
{
    if (o->population)
        kvr_popularity_init_lognormal(law, o->keys, o->population, o->weight_sigma, o->weight_cap);
    else
        kvr_popularity_init_power(law, o->keys, o->weight_shift, o->weight_power);
}

/* Weights of the law, the first `whales` of them replaced by even shares of their part. */
static void weigh_keys(struct kvr_workload *workload)
{
    const struct kvr_workload_options *o = &workload->options;
    if (o->whales == 0) {
        weigh_by_law(o, &workload->popularity);
        return;
    }
    struct kvr_popularity law;
    weigh_by_law(o, &law);
    double *weights = kvr_alloc(o->keys * sizeof *weights);
    double rest = 1 - law.upto[o->whales - 1];
    for (uint32_t i = 0; i < o->keys; i++) {
        /* A steep law may leave the others less than a double can tell from nothing. */
        double share = i < o->whales ? 0
                       : rest > 0    ? (law.upto[i] - law.upto[i - 1]) / rest
                                     : 1.0 / (o->keys - o->whales);
        weights[i] = i < o->whales ? o->whale_share / o->whales : (1 - o->whale_share) * share;
    }
    kvr_popularity_init(&workload->popularity, weights, o->keys);
    kvr_popularity_deinit(&law);
    kvr_free(weights);
}

static void weigh(struct kvr_workload *workload)
{
    struct kvr_workload_options *o = &workload->options;
    if (o->kind == KVR_WORKLOAD_SESSIONS)
        kvr_popularity_init_power(&workload->popularity, o->sessions, 0, o->skew);
    else if (o->kind == KVR_WORKLOAD_KEYS && o->weights_len)
        kvr_popularity_init(&workload->popularity, o->weights, o->weights_len);
    else if (o->kind == KVR_WORKLOAD_KEYS)
        weigh_keys(workload);
    o->weights = NULL;
    if (o->kind == KVR_WORKLOAD_KEYS && o->drift_sigma > 0)
        kvr_keys_start_drift(workload);
}

struct kvr_workload *kvr_workload_create(const struct kvr_workload_options *options,
                                         struct kvr_error *error)
{
    if (check(options, error) || check_times(options, error) || check_weights(options, error))
        return NULL;
    struct kvr_workload *workload = kvr_alloc_zero(1, sizeof *workload);
    workload->options = *options;
    derive(&workload->options);
    weigh(workload);
    workload->pieces = kvr_alloc(KVR_WORKLOAD_PIECES_MAX * sizeof *workload->pieces);
    if (options->times_len) {
        workload->times_ms = kvr_alloc(options->times_len * sizeof *workload->times_ms);
        memcpy(workload->times_ms, options->times_ms,
               options->times_len * sizeof *workload->times_ms);
    }
    workload->options.times_ms = NULL;
    if (options->kind != KVR_WORKLOAD_LIST)
        kvr_workload_rewind(workload);
    return workload;
}

void kvr_workload_destroy(struct kvr_workload *workload)
{
    if (!workload)
        return;
    kvr_popularity_deinit(&workload->popularity);
    kvr_event_queue_deinit(&workload->threads.due);
    kvr_request_list_deinit(&workload->list);
    kvr_buffer_deinit(&workload->name);
    kvr_free(workload->pieces);
    kvr_free(workload->times_ms);
    kvr_free(workload->order);
    kvr_free(workload->drift);
    kvr_free(workload);
}

const struct kvr_workload_options *kvr_workload_options(const struct kvr_workload *workload)
{
    return &workload->options;
}

bool kvr_workload_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                       struct kvr_workload_request *request)
{
    const struct kvr_workload_options *o = &workload->options;
    *request = (struct kvr_workload_request){.user = user, .turn = turn};
    request->tag = kvr_draw(o->seed, KVR_FOR_TAG, user, turn);
    request->pieces = workload->pieces;
    if (o->kind == KVR_WORKLOAD_LIST) {
        kvr_request_list_sort(&workload->list);
        return kvr_request_list_turn(workload, user, turn, request);
    }
    if (o->turns_max && turn >= o->turns_max)
        return false;
    return o->kind == KVR_WORKLOAD_SESSIONS ? kvr_sessions_turn(workload, user, turn, request)
                                            : kvr_keys_turn(workload, user, turn, request);
}

/* One mix gives 16 letters a..p, so that any range can be written alone. */
static inline void put_letters(uint64_t id, uint64_t word, char out[16])
{
    uint64_t mixed = kvr_mix64(id + (word + 1) * 0x9e3779b97f4a7c15u);
    uint64_t low = (mixed & 0x0f0f0f0f0f0f0f0fu) + 0x6161616161616161u;
    uint64_t high = (mixed >> 4 & 0x0f0f0f0f0f0f0f0fu) + 0x6161616161616161u;
    if (__BYTE_ORDER__ == __ORDER_BIG_ENDIAN__) {
        low = __builtin_bswap64(low);
        high = __builtin_bswap64(high);
    }
    memcpy(out, &low, 8);
    memcpy(out + 8, &high, 8);
}

void kvr_workload_text(uint64_t id, uint64_t offset, size_t len, char *out)
{
    char letters[16];
    size_t done = 0;
    if (offset % 16) {
        size_t skip = (size_t)(offset % 16);
        done = len < 16 - skip ? len : 16 - skip;
        put_letters(id, offset / 16, letters);
        memcpy(out, letters + skip, done);
    }
    for (; len - done >= 16; done += 16)
        put_letters(id, (offset + done) / 16, out + done);
    if (done < len) {
        put_letters(id, (offset + done) / 16, letters);
        memcpy(out + done, letters, len - done);
    }
}

const char *kvr_speaker_name(uint32_t speaker)
{
    static const char *const names[] = {"system", "user", "assistant", "tool"};
    return names[speaker <= KVR_TOOL ? speaker : KVR_USER];
}

size_t kvr_workload_session_name(const struct kvr_workload *workload, uint64_t session, char *out)
{
    static const char digits[] = "0123456789abcdef";
    uint64_t name = kvr_text_id(workload, KVR_FOR_NAME, session, 0);
    size_t len = 0;
    out[len++] = 's';
    out[len++] = '-';
    for (int shift = 60; shift >= 0; shift -= 4)
        out[len++] = digits[name >> shift & 15];
    out[len] = '\0';
    return len;
}
