/* What the emulated engine costs by itself: no router, no policy, no sockets, one core.
 *
 *   requests_per_s             the closed loop of the 3090 study: 5 replicas, 307 sessions, 32
 * users, visits of 4 turns without think time, sessions spread by hash times_real_time simulated
 * over wall seconds of the same run h100x2_70b_requests_per_s  open loop on 30 replicas: 128 keys
 * of 42 variants, about 460 blocks a prompt, warm h100_8b_cpu_us_per_event   every token reported,
 * 5 replicas of 512 sequences each
 *
 * Each figure is the best of three runs. */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <time.h>

#include "answer.h"
#include "engine.h"
#include "real.h"
#include "rng.h"
#include "tokens.h"

#define REPLICAS_MAX 30
#define USERS_MAX    2560
#define RUNS         3
#define SECOND       UINT64_C(1000000000)

struct fleet {
    struct kvr_engine engines[REPLICAS_MAX];
    uint64_t next_ns[REPLICAS_MAX]; /* of each engine */
    uint32_t count;
    struct kvr_tokens tokens;
    uint64_t finished;
    uint64_t events;
    uint64_t prompt_tokens;
    uint64_t cached_tokens;
};

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void fleet_init(struct fleet *fleet, const struct kvr_profile *profile, uint32_t count,
                       bool token_events)
{
    *fleet = (struct fleet){.count = count};
    for (uint32_t i = 0; i < count; i++) {
        struct kvr_engine_options options = {
            .profile = profile, .seed = i, .token_events = token_events};
        int failed = kvr_engine_init(&fleet->engines[i], &options, NULL);
        KVR_CHECK(!failed);
        fleet->next_ns[i] = KVR_ENGINE_NEVER;
    }
    kvr_tokens_init(&fleet->tokens, profile->bytes_per_token);
}

static void fleet_deinit(struct fleet *fleet)
{
    for (uint32_t i = 0; i < fleet->count; i++)
        kvr_engine_deinit(&fleet->engines[i]);
    kvr_tokens_deinit(&fleet->tokens);
}

static uint32_t earliest(const uint64_t *times, uint32_t count)
{
    uint32_t first = 0;
    for (uint32_t i = 1; i < count; i++)
        if (times[i] < times[first])
            first = i;
    return first;
}

/* Submits what is in fleet->tokens, the prompt being its first `prompt_tokens`. */
static void fleet_submit(struct fleet *fleet, uint32_t replica, uint64_t now_ns, uint64_t id,
                         uint32_t prompt_tokens)
{
    struct kvr_engine *engine = &fleet->engines[replica];
    struct kvr_engine_handle handle;
    struct kvr_engine_request request = {
        .id = id,
        .blocks = fleet->tokens.blocks,
        .blocks_len = fleet->tokens.blocks_len,
        .prompt_tokens = prompt_tokens,
        .output_tokens = fleet->tokens.count - prompt_tokens,
    };
    int failed = kvr_engine_submit(engine, now_ns, &request, &handle);
    KVR_CHECK(!failed);
    fleet->next_ns[replica] = kvr_engine_next_time(engine);
}

/* The next event of this replica; false when it has none now. */
static bool fleet_event(struct fleet *fleet, uint32_t replica, struct kvr_engine_event *event)
{
    if (!kvr_engine_next_event(&fleet->engines[replica], event)) {
        fleet->next_ns[replica] = kvr_engine_next_time(&fleet->engines[replica]);
        return false;
    }
    fleet->events++;
    if (event->kind == KVR_ENGINE_FINISHED) {
        fleet->finished++;
        fleet->prompt_tokens += event->prompt_tokens;
        fleet->cached_tokens += event->cached_tokens;
    }
    return true;
}

/* --- the 3090 study ------------------------------------------------------------------------- */

#define SESSIONS 307
#define TURNS    4
#define USERS    32

struct user {
    uint32_t visits;
    uint32_t turn;
    uint32_t session;
};

static uint64_t draw(uint64_t a, uint64_t b, uint64_t c)
{
    return kvr_mix64(kvr_mix64(kvr_mix64(a + 1) + b + 1) + c + 1);
}

static uint32_t build_turn(struct kvr_tokens *tokens, uint32_t session, uint32_t turn)
{
    const uint32_t said = 1127, heard = 161, system = 322, markup = 4;
    bool has_system = draw(1, session, 0) % 10 < 3;
    bool branches = draw(2, session, 0) % 10 < 3;
    kvr_tokens_begin(tokens, 0, false);
    kvr_tokens_segment(tokens, has_system ? 1 : 2, has_system ? 10 + system : 28);
    for (uint32_t t = 0; t <= turn; t++) {
        uint64_t family = draw(3, session, 0) % 8;
        uint64_t text = t == 0 && branches ? draw(4, family, 0) : draw(5, session, t);
        kvr_tokens_segment(tokens, text, said + markup - (has_system && t == turn ? system : 0));
        if (t < turn)
            kvr_tokens_segment(tokens, ~text, heard + markup);
    }
    kvr_tokens_segment(tokens, 10 + turn, 4);
    return tokens->count;
}

static void run_study(double *requests_per_s, double *times_real_time)
{
    const uint64_t simulated_ns = 3000 * SECOND;
    const struct kvr_profile *profile = kvr_profile_find(kvr_slice_of("rtx3090-8b-awq"));
    const uint64_t before_ns = (uint64_t)(profile->overhead_ms * 0.8e6);
    const uint64_t after_ns = (uint64_t)(profile->overhead_ms * 0.2e6);
    static struct fleet fleet;
    static struct user users[USERS];
    uint64_t arrives_ns[USERS];
    fleet_init(&fleet, profile, 5, false);
    for (uint32_t i = 0; i < USERS; i++) {
        users[i] = (struct user){0};
        arrives_ns[i] = before_ns;
    }
    double start = cpu_seconds();
    for (;;) {
        uint32_t user = earliest(arrives_ns, USERS);
        uint32_t replica = earliest(fleet.next_ns, fleet.count);
        if (arrives_ns[user] <= fleet.next_ns[replica]) {
            uint64_t now_ns = arrives_ns[user];
            if (now_ns > simulated_ns)
                break;
            struct user *u = &users[user];
            if (u->turn == 0)
                u->session = (uint32_t)(draw(6, user, u->visits++) % SESSIONS);
            uint32_t prompt = build_turn(&fleet.tokens, u->session, u->turn);
            struct kvr_answer_length answer =
                kvr_answer_length(draw(7, user, u->visits * TURNS + u->turn), 64, 0.2);
            kvr_tokens_segment(&fleet.tokens, draw(8, user, u->visits * TURNS + u->turn),
                               answer.tokens);
            u->turn = (u->turn + 1) % TURNS;
            fleet_submit(&fleet, (uint32_t)(draw(9, u->session, 0) % fleet.count), now_ns, user,
                         prompt);
            arrives_ns[user] = KVR_ENGINE_NEVER;
            continue;
        }
        kvr_engine_advance(&fleet.engines[replica], fleet.next_ns[replica]);
        struct kvr_engine_event event;
        while (fleet_event(&fleet, replica, &event))
            if (event.kind == KVR_ENGINE_FINISHED)
                arrives_ns[event.request] = event.time_ns + after_ns + 1000000 + before_ns;
    }
    double seconds = cpu_seconds() - start;
    *requests_per_s = (double)fleet.finished / seconds;
    *times_real_time = (double)simulated_ns / 1e9 / seconds;
    fprintf(stderr, "study: %.2f requests/s simulated, hit rate %.1f %%, %.3f s\n",
            (double)fleet.finished / 3000.0,
            100.0 * (double)fleet.cached_tokens / (double)fleet.prompt_tokens, seconds);
    fleet_deinit(&fleet);
}

/* --- the 70B fleet -------------------------------------------------------------------------- */

#define KEYS     128
#define VARIANTS 42

static void run_70b(double *requests_per_s)
{
    const uint32_t warm = 16000, measured = 30000;
    const double rate = 100.0;
    static struct fleet fleet;
    fleet_init(&fleet, kvr_profile_find(kvr_slice_of("h100x2-70b-fp8")), 30, false);
    struct kvr_rng rng;
    kvr_rng_init(&rng, 1);
    uint64_t arrives_ns = 0;
    uint32_t sent = 0;
    double start = 0.0;
    while (fleet.finished < warm + measured) {
        if (fleet.finished < warm)
            start = cpu_seconds();
        uint32_t replica = earliest(fleet.next_ns, fleet.count);
        if (arrives_ns <= fleet.next_ns[replica]) {
            uint64_t key = kvr_rng_below(&rng, KEYS);
            uint64_t variant = key * VARIANTS + kvr_rng_below(&rng, VARIANTS);
            kvr_tokens_begin(&fleet.tokens, 0, false);
            kvr_tokens_segment(&fleet.tokens, 1, 4400);
            kvr_tokens_segment(&fleet.tokens, 1000 + key, 180);
            kvr_tokens_segment(&fleet.tokens, 10000 + variant, 2400);
            kvr_tokens_segment(&fleet.tokens, 1000000 + sent,
                               200 + (uint32_t)kvr_rng_below(&rng, 401));
            uint32_t prompt = fleet.tokens.count;
            kvr_tokens_segment(&fleet.tokens, UINT64_C(1) << 40 | sent, 48);
            fleet_submit(&fleet, (uint32_t)(key % fleet.count), arrives_ns, sent++, prompt);
            arrives_ns += (uint64_t)(-kvr_real_log(1.0 - kvr_rng_double(&rng)) / rate * 1e9) + 1;
            continue;
        }
        kvr_engine_advance(&fleet.engines[replica], fleet.next_ns[replica]);
        struct kvr_engine_event event;
        while (fleet_event(&fleet, replica, &event)) {
        }
    }
    double seconds = cpu_seconds() - start;
    *requests_per_s = measured / seconds;
    fprintf(stderr, "70b: hit rate %.1f %%, %.3f s\n",
            100.0 * (double)fleet.cached_tokens / (double)fleet.prompt_tokens, seconds);
    fleet_deinit(&fleet);
}

/* --- every token reported ------------------------------------------------------------------- */

static void run_tokens(double *us_per_event)
{
    const uint32_t streams = 5 * 512;
    struct kvr_profile profile = *kvr_profile_find(kvr_slice_of("h100-8b-bf16"));
    profile.max_num_seqs = 512;
    static struct fleet fleet;
    fleet_init(&fleet, &profile, 5, true);
    uint64_t serial = 0;
    static uint64_t again_ns[USERS_MAX];
    for (uint32_t i = 0; i < streams; i++)
        again_ns[i] = i * 1000000ull;
    double start = cpu_seconds();
    while (fleet.events < 3000000) {
        uint32_t replica = earliest(fleet.next_ns, fleet.count);
        uint32_t stream = (uint32_t)(serial < streams ? serial : 0);
        if (serial < streams && again_ns[stream] <= fleet.next_ns[replica]) {
            kvr_tokens_begin(&fleet.tokens, 0, false);
            kvr_tokens_segment(&fleet.tokens, serial, 300);
            kvr_tokens_segment(&fleet.tokens, ~serial, 400);
            fleet_submit(&fleet, stream % 5, again_ns[stream], stream, 300);
            serial++;
            continue;
        }
        uint64_t now_ns = fleet.next_ns[replica];
        kvr_engine_advance(&fleet.engines[replica], now_ns);
        struct kvr_engine_event event;
        while (fleet_event(&fleet, replica, &event)) {
            if (event.kind != KVR_ENGINE_FINISHED)
                continue;
            kvr_tokens_begin(&fleet.tokens, 0, false);
            kvr_tokens_segment(&fleet.tokens, ++serial, 300);
            kvr_tokens_segment(&fleet.tokens, ~serial, 400);
            fleet_submit(&fleet, replica, now_ns, event.request, 300);
        }
    }
    *us_per_event = (cpu_seconds() - start) * 1e6 / (double)fleet.events;
    fleet_deinit(&fleet);
}

static void print(const char *figure, double value, const char *unit)
{
    printf("{\"bench\":\"engine_core\",\"figure\":\"%s\",\"value\":%.4g,\"unit\":\"%s\"}\n", figure,
           value, unit);
}

int main(void)
{
    double requests_per_s = 0.0, times_real_time = 0.0, requests_70b = 0.0, us_per_event = 1e9;
    for (int run = 0; run < RUNS; run++) {
        double a, b, c, d;
        run_study(&a, &b);
        run_70b(&c);
        run_tokens(&d);
        requests_per_s = a > requests_per_s ? a : requests_per_s;
        times_real_time = b > times_real_time ? b : times_real_time;
        requests_70b = c > requests_70b ? c : requests_70b;
        us_per_event = d < us_per_event ? d : us_per_event;
    }
    print("requests_per_s", requests_per_s, "1/s");
    print("times_real_time", times_real_time, "x");
    print("h100x2_70b_requests_per_s", requests_70b, "1/s");
    print("h100_8b_cpu_us_per_event", us_per_event, "us");
    return 0;
}
