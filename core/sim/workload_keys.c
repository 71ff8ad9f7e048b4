/* Independent requests about a key: the part of workload.h about KEYS. */
#include <math.h>

#include "memory.h"
#include "real.h"
#include "workload_parts.h"

/* Bytes that make so many tokens. */
static uint32_t bytes_of(const struct kvr_workload_options *o, double tokens)
{
    return tokens > 0 ? (uint32_t)(tokens * o->bytes_per_token) : 0;
}

/* One more piece of the message of `speaker`. */
static void add(struct kvr_workload *workload, struct kvr_workload_request *request, uint64_t id,
                uint32_t bytes, enum kvr_speaker speaker)
{
    if (bytes == 0)
        return;
    struct kvr_piece *piece = &workload->pieces[request->pieces_len++];
    *piece = (struct kvr_piece){.id = id, .bytes = bytes, .speaker = (uint8_t)speaker};
    piece->continues = request->pieces_len > 1 && piece[-1].speaker == (uint8_t)speaker;
    request->prompt_bytes += bytes;
}

static uint32_t unique_bytes(const struct kvr_workload_options *o, uint64_t user, uint64_t turn)
{
    double length = kvr_unit(kvr_draw(o->seed, KVR_FOR_LENGTH, user, turn));
    double unique = o->unique_tokens * (1 - o->unique_spread + 2 * o->unique_spread * length);
    return bytes_of(o, unique);
}

static void draw_output(const struct kvr_workload_options *o, uint64_t user, uint64_t turn,
                        struct kvr_workload_request *request)
{
    request->max_tokens = request->output_tokens = o->output_tokens;
    if (!(o->output_cv > 0))
        return;
    double variance = kvr_real_log(1 + o->output_cv * o->output_cv);
    double normal = kvr_real_normal(kvr_draw(o->seed, KVR_FOR_OUTPUT, user, turn));
    double tokens = o->output_tokens * kvr_real_exp(sqrt(variance) * normal - variance / 2);
    request->max_tokens = o->output_max;
    request->output_tokens = tokens < 1               ? 1
                             : tokens > o->output_max ? o->output_max
                                                      : (uint32_t)(tokens + 0.5);
    request->stops = request->output_tokens < o->output_max;
}

/* How long this key's own texts are, over those of the options. */
static double length_of(const struct kvr_workload_options *o, uint64_t key)
{
    if (!(o->length_sigma > 0))
        return 1;
    return kvr_real_exp(o->length_sigma *
                        kvr_real_normal(kvr_draw(o->seed, KVR_FOR_KEY_LENGTH, key, 0)));
}

void kvr_keys_start_drift(struct kvr_workload *workload)
{
    uint32_t keys = workload->options.keys;
    workload->drift = kvr_alloc_zero(keys, sizeof *workload->drift);
    for (uint32_t key = 0; key < keys; key++)
        workload->drift[key].share = kvr_workload_key_share(workload, key);
}

/* Takes all weights to where they are after so many steps. A walk is always added up from its
 * start, so that it is the same in whatever order requests are asked for. */
static void drift_to(struct kvr_workload *workload, uint64_t steps)
{
    const struct kvr_workload_options *o = &workload->options;
    if (steps == workload->drift_steps)
        return;
    bool back = steps < workload->drift_steps;
    double *weights = kvr_alloc(o->keys * sizeof *weights);
    for (uint32_t key = 0; key < o->keys; key++) {
        struct kvr_drift *drift = &workload->drift[key];
        drift->walk = back ? 0 : drift->walk;
        for (uint64_t i = back ? 0 : workload->drift_steps; i < steps; i++)
            drift->walk += kvr_real_normal(kvr_draw(o->seed, KVR_FOR_DRIFT, key, i));
        weights[key] = drift->share * kvr_real_exp(o->drift_sigma * drift->walk);
    }
    kvr_popularity_deinit(&workload->popularity);
    kvr_popularity_init(&workload->popularity, weights, o->keys);
    kvr_free(weights);
    workload->drift_steps = steps;
}

/* What is new in a request, and in front of it what its thread said and was answered before. */
static void add_turns(struct kvr_workload *workload, struct kvr_workload_request *request)
{
    const struct kvr_workload_options *o = &workload->options;
    uint64_t user = request->user;
    uint64_t first = o->thread_more > 0 ? 0 : request->turn;
    for (uint64_t turn = first; turn <= request->turn; turn++) {
        add(workload, request, kvr_text_id(workload, KVR_TEXT_UNIQUE, user, turn),
            unique_bytes(o, user, turn), KVR_USER);
        draw_output(o, user, turn, request);
        if (turn < request->turn)
            add(workload, request, kvr_text_id(workload, KVR_TEXT_ASSISTANT, user, turn),
                bytes_of(o, request->output_tokens), KVR_ASSISTANT);
    }
}

bool kvr_keys_turn(struct kvr_workload *workload, uint64_t user, uint64_t turn,
                   struct kvr_workload_request *request)
{
    const struct kvr_workload_options *o = &workload->options;
    bool threads = o->thread_more > 0;
    if (threads && turn >= kvr_thread_turns(o, user))
        return false;
    if (workload->drift) {
        uint64_t users = o->arrivals == KVR_ARRIVALS_CLOSED ? o->users : 1;
        drift_to(workload, (uint64_t)((double)(turn * users + user) / o->drift_requests));
    }
    double unit = kvr_unit(kvr_draw(o->seed, KVR_FOR_KEY, user, threads ? 0 : turn));
    uint64_t key = kvr_popularity_draw(&workload->popularity, unit);
    uint64_t variant =
        o->variants ? kvr_draw(o->seed, KVR_FOR_VARIANT, user, turn) % o->variants : 0;
    double longer = length_of(o, key);
    request->session = key + 1;
    request->session_turn = threads ? (uint32_t)turn + 1 : 1;
    request->session_turns = threads ? kvr_thread_turns(o, user) : 0;
    add(workload, request, kvr_text_id(workload, KVR_TEXT_TEMPLATE, 0, 0),
        bytes_of(o, o->template_tokens), KVR_SYSTEM);
    add(workload, request, kvr_text_id(workload, KVR_TEXT_CONTEXT, key, 0),
        bytes_of(o, o->context_tokens * longer), KVR_USER);
    add(workload, request, kvr_text_id(workload, KVR_TEXT_VARIANT, key, variant),
        bytes_of(o, o->variant_tokens * longer), KVR_USER);
    add_turns(workload, request);
    return request->pieces_len > 0;
}

double kvr_workload_key_share(const struct kvr_workload *workload, uint32_t key)
{
    const double *upto = workload->popularity.upto;
    KVR_CHECK(workload->options.kind == KVR_WORKLOAD_KEYS && key < workload->options.keys);
    return key ? upto[key] - upto[key - 1] : upto[0];
}

void kvr_workload_key_tokens(const struct kvr_workload *workload, uint32_t key, double *all,
                             double *one)
{
    const struct kvr_workload_options *o = &workload->options;
    double longer = length_of(o, key);
    *one = longer * (o->context_tokens + o->variant_tokens);
    *all = longer * (o->context_tokens + o->variant_tokens * (o->variants ? o->variants : 1));
}
