/* What one decision costs: the router fills its view, the policy picks and, where the pick was made
 * for the cache, the spill rule is asked. The guard is armed as in the ingress, requests come and
 * go between decisions, and every decision has another match.
 *
 * Prints one JSON line a figure: the median of WINDOWS windows. The look into the prefix index is
 * not in it (bench_index measures that): matches are written over the view as the index gives
 * them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "buffer.h"
#include "check.h"
#include "decide.h"
#include "guard.h"
#include "memory.h"
#include "rng.h"
#include "router.h"

#define WINDOWS     9
#define DECISIONS   40000 /* a window */
#define WARM_UP     60000
#define PATTERNS    256 /* different matches, then again from the first */
#define CHAIN       64  /* blocks of a prompt */
#define PER_REPLICA 4   /* requests in flight, about */
#define MAX_OPEN    1024
#define PLANNED     128824 /* keys of a plan, as in the CacheRoute paper */

struct fleet {
    struct kvr_router router;
    struct kvr_request_ref request; /* decided for again and again */
    struct kvr_request_record *record;
    struct kvr_submission submission;
    uint64_t chain[CHAIN];
    uint32_t replicas;
    uint64_t first_key;      /* of PLANNED routing keys; 0: no plan is in force */
    uint32_t *matches;       /* PATTERNS x replicas, as the prefix index gives them */
    uint32_t open[MAX_OPEN]; /* replica of each request in flight, oldest first from `oldest` */
    uint32_t open_count;
    uint32_t oldest;
};

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

/* Every tenth prompt is new to the fleet; others are held by one to three replicas. */
static void make_matches(struct fleet *fleet, uint32_t replicas, struct kvr_rng *rng)
{
    fleet->matches = kvr_alloc_zero((size_t)PATTERNS * replicas, sizeof *fleet->matches);
    for (uint32_t pattern = 0; pattern < PATTERNS; pattern++) {
        if (pattern % 10 == 0)
            continue;
        uint32_t blocks = 1 + (uint32_t)kvr_rng_below(rng, CHAIN);
        uint64_t holders = 1 + kvr_rng_below(rng, 3);
        for (uint64_t h = 0; h < holders; h++)
            fleet->matches[pattern * replicas + kvr_rng_below(rng, replicas)] = blocks;
    }
}

/* A request under way, so that there is a record to decide for. */
static void open_request(struct fleet *fleet)
{
    struct kvr_router *router = &fleet->router;
    fleet->submission = (struct kvr_submission){
        .request_id = kvr_slice_of("bench"),
        .endpoint = "chat",
        .session_source = "none",
        .routed = true,
        .stream = true,
        .chain = fleet->chain,
        .chain_len = CHAIN,
        .choices = 1,
        .prompt_bytes = CHAIN * 64.0,
        .prompt_tokens = (double)NAN,
        .max_tokens = 256.0,
        .slo_ttft_ms = (double)NAN,
    };
    fleet->request = kvr_router_submit(router, 1, &fleet->submission);
    struct kvr_action action;
    KVR_CHECK(kvr_router_next_action(router, &action) && action.kind == KVR_ACTION_DISPATCH);
    kvr_router_settle(router);
    kvr_router_first_token(router, 1, fleet->request); /* its ticket holds no tokens any more */
    fleet->record = kvr_request_at(&router->requests, fleet->request);
}

static void make_fleet(struct fleet *fleet, uint32_t replicas)
{
    struct kvr_rng rng;
    kvr_rng_init(&rng, 7);
    kvr_router_init(&fleet->router, &(struct kvr_router_options){.seed = 1});
    fleet->replicas = replicas;
    for (uint32_t i = 0; i < replicas; i++) {
        char authority[32];
        snprintf(authority, sizeof authority, "10.0.0.%u:8000", i + 1);
        struct kvr_replica_spec spec = {.authority = kvr_slice_of(authority), .rank = -1};
        KVR_CHECK(kvr_router_add_replica(&fleet->router, 0, &spec, NULL) == (int)i);
        kvr_replica_set_operational(&fleet->router.replicas, i, KVR_RAMPING, 0);
        kvr_replica_set_operational(&fleet->router.replicas, i, KVR_UP, 0);
    }
    for (uint32_t i = 0; i < CHAIN; i++)
        fleet->chain[i] = kvr_rng_next(&rng);
    make_matches(fleet, replicas, &rng);
    open_request(fleet);
}

static void free_fleet(struct fleet *fleet)
{
    struct kvr_ending ending = {.outcome = KVR_OUTCOME_SUCCESS, .status = 200};
    kvr_router_finish(&fleet->router, 2, fleet->request, &ending);
    kvr_router_deinit(&fleet->router);
    kvr_free(fleet->matches);
}

static uint64_t model_key(const struct fleet *fleet, uint64_t routing_key)
{
    return kvr_model_key(kvr_hash32(fleet->record->model->hash), kvr_hash32(routing_key));
}

static void name_key(struct fleet *fleet, uint64_t routing_key)
{
    fleet->record->routing_key = routing_key;
    fleet->record->model_key = model_key(fleet, routing_key);
}

static void fill_view(struct fleet *fleet, uint64_t now)
{
    struct kvr_picture *picture = &fleet->router.picture;
    uint32_t serial = ++fleet->record->model->serial;
    fleet->chain[15] = fleet->record->session = kvr_mix64(serial);
    if (fleet->first_key)
        name_key(fleet, fleet->first_key + kvr_mix64(serial) % PLANNED);
    kvr_decide_view(&fleet->router, now, fleet->record, fleet->chain,
                    fleet->first_key ? KVR_NEEDS_PLAN : 0);
    const uint32_t *matches = &fleet->matches[(serial % PATTERNS) * fleet->replicas];
    for (uint32_t i = 0; i < fleet->replicas; i++) {
        picture->rows[i].match_blocks = matches[i];
        picture->rows[i].recent_uncached_tokens = (double)(matches[i] * 100u);
        if (matches[i] > picture->view.max_match_blocks)
            picture->view.max_match_blocks = matches[i];
    }
}

/* The request goes there; the oldest one ends when the fleet holds enough. */
static void dispatch(struct fleet *fleet, uint32_t replica)
{
    struct kvr_load *loads = fleet->router.loads;
    uint32_t limit = PER_REPLICA * fleet->replicas;
    if (fleet->open_count == limit) {
        loads[fleet->open[fleet->oldest]].in_flight--;
        fleet->open[fleet->oldest] = replica;
        fleet->oldest = (fleet->oldest + 1) % limit;
    } else {
        fleet->open[fleet->open_count++] = replica;
    }
    loads[replica].in_flight++;
    loads[replica].uncached_tokens = loads[replica].in_flight * 300u;
}

/* One decision: the row that takes the request. Without a policy only the view is filled. */
static uint32_t decide(struct fleet *fleet, struct kvr_slot *policy, struct kvr_slot *spill,
                       uint64_t now)
{
    struct kvr_decision pick = {0}, moved = {0};
    fill_view(fleet, now);
    if (!policy)
        return fleet->record->model->serial % fleet->replicas;
    KVR_CHECK(kvr_slot_pick(policy, &pick) == 0 && pick.verdict == KVR_VERDICT_PICK);
    if (!spill || !pick.affine)
        return pick.index;
    KVR_CHECK(kvr_slot_spill(spill, pick.index, &moved) == 0);
    KVR_CHECK(moved.verdict == KVR_VERDICT_PICK);
    return moved.index;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Nanoseconds of one decision, dispatch included (two increments and a ring of open requests). */
static double measure(struct fleet *fleet, struct kvr_slot *policy, struct kvr_slot *spill)
{
    double windows[WINDOWS];
    uint64_t now = 1000000000u;
    for (uint32_t i = 0; i < WARM_UP; i++)
        dispatch(fleet, decide(fleet, policy, spill, now += 500000));
    for (uint32_t w = 0; w < WINDOWS; w++) {
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < DECISIONS; i++)
            dispatch(fleet, decide(fleet, policy, spill, now += 500000));
        windows[w] = (double)(now_ns() - start) / DECISIONS;
    }
    qsort(windows, WINDOWS, sizeof *windows, compare);
    return windows[WINDOWS / 2];
}

static void read_file(const char *path, struct kvr_buffer *out)
{
    FILE *file = fopen(path, "rb");
    if (!file) {
        fprintf(stderr, "cannot read %s\n", path);
        exit(1);
    }
    char chunk[4096];
    size_t got;
    while ((got = fread(chunk, 1, sizeof chunk, file)) > 0)
        kvr_buffer_append(out, chunk, got);
    fclose(file);
}

static void load_into(struct kvr_slot *slot, enum kvr_script_kind kind, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/policies/%s%s.lua", KVR_SOURCE_DIR,
             kind == KVR_SCRIPT_SPILL ? "spill/" : "", name);
    struct kvr_buffer text = {0};
    read_file(path, &text);
    struct kvr_error error;
    if (kvr_slot_load(slot, kvr_slice_of(name), kvr_slice_of(path),
                      kvr_slice_make(text.data, text.len), NULL, 0, &error) != 0) {
        fprintf(stderr, "%s: %s\n", path, error.text);
        exit(1);
    }
    kvr_buffer_deinit(&text);
}

static struct kvr_slot *load(struct fleet *fleet, enum kvr_script_kind kind, const char *name)
{
    struct kvr_slot *slot = kvr_slot_create(kind, &fleet->router.picture, 1);
    load_into(slot, kind, name);
    return slot;
}

static void print(const char *figure, double value)
{
    printf("{\"bench\":\"policy\",\"figure\":\"%s\",\"value\":%.0f,\"unit\":\"ns\"}\n", figure,
           value);
}

/* The whole decision of prefix_affinity with load_min, at a fleet of that size. */
static void decision(uint32_t replicas, const char *figure)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, replicas);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, "prefix_affinity");
    struct kvr_slot *spill = load(&fleet, KVR_SCRIPT_SPILL, "load_min");
    print(figure, measure(&fleet, policy, spill));
    kvr_slot_destroy(policy);
    kvr_slot_destroy(spill);
    free_fleet(&fleet);
}

/* One policy's pick (or prefix_affinity's with a spill rule) at 8 replicas, without the filling. */
static void part(const char *policy_name, const char *spill_name, double without)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, 8);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, policy_name);
    struct kvr_slot *spill = spill_name ? load(&fleet, KVR_SCRIPT_SPILL, spill_name) : NULL;
    char figure[96];
    snprintf(figure, sizeof figure, "%s_%s_ns", spill_name ? "spill" : "pick",
             spill_name ? spill_name : policy_name);
    print(figure, measure(&fleet, policy, spill) - without);
    kvr_slot_destroy(policy);
    if (spill)
        kvr_slot_destroy(spill);
    free_fleet(&fleet);
}

/* Of PLANNED keys, all admitted. A plan has no key twice, and in 32 bits two may fall together. */
static void install_plan(struct fleet *fleet)
{
    uint64_t ids[64];
    struct kvr_plan *plan = NULL;
    struct kvr_plan_key *keys = kvr_alloc(PLANNED * sizeof *keys);
    for (fleet->first_key = 1; !plan; fleet->first_key += PLANNED) {
        for (uint32_t i = 0; i < PLANNED; i++)
            keys[i] = (struct kvr_plan_key){model_key(fleet, fleet->first_key + i), 1.0 / (i + 1)};
        plan = kvr_plan_create(&(struct kvr_plan_options){0}, keys, PLANNED, NULL, fleet->replicas,
                               NULL);
    }
    fleet->first_key -= PLANNED;
    kvr_free(keys);
    for (uint32_t i = 0; i < fleet->replicas; i++)
        ids[i] = fleet->router.replicas.slots[i].id;
    KVR_CHECK(!kvr_router_install_plan(&fleet->router, plan, ids));
}

/* cacheroute's decision for a planned key, with the look into the plan. */
static void planned(uint32_t replicas, const char *figure)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, replicas);
    install_plan(&fleet);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, "cacheroute");
    print(figure, measure(&fleet, policy, NULL));
    KVR_CHECK(fleet.router.picture.view.planned);
    kvr_slot_destroy(policy);
    free_fleet(&fleet);
}

static double fill_only(uint32_t replicas)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, replicas);
    double ns = measure(&fleet, NULL, NULL);
    free_fleet(&fleet);
    return ns;
}

/* ---- a request's whole life in the router ---- */

/* Submitted, decided, settled; ended when PER_REPLICA for each replica are open. */
static void serve(struct fleet *fleet, struct kvr_request_ref *open, uint32_t at, uint64_t now)
{
    static const struct kvr_ending ending = {.outcome = KVR_OUTCOME_SUCCESS,
                                             .status = 200,
                                             .prompt_tokens = -1,
                                             .output_tokens = -1,
                                             .cached_tokens = -1};
    struct kvr_router *router = &fleet->router;
    struct kvr_request_ref *ref = &open[at % (PER_REPLICA * fleet->replicas)];
    if (ref->generation)
        kvr_router_finish(router, now, *ref, &ending);
    uint64_t prompt = kvr_mix64(at % PATTERNS);
    for (uint32_t i = 0; i < CHAIN; i++)
        fleet->chain[i] = prompt += 0x9e3779b97f4a7c15u;
    fleet->submission.session = prompt;
    *ref = kvr_router_submit(router, now, &fleet->submission);
    struct kvr_action action;
    KVR_CHECK(kvr_router_next_action(router, &action) && action.kind == KVR_ACTION_DISPATCH);
    kvr_router_settle(router);
}

/* Nanoseconds of one, with what is in force in the router's own slots. */
static double measure_requests(struct fleet *fleet)
{
    static struct kvr_request_ref open[PER_REPLICA * 64];
    double windows[WINDOWS];
    uint64_t now = 1000000000u;
    uint32_t at = 0;
    memset(open, 0, sizeof open);
    for (uint32_t i = 0; i < WARM_UP; i++)
        serve(fleet, open, at++, now += 500000);
    for (uint32_t w = 0; w < WINDOWS; w++) {
        uint64_t start = now_ns();
        for (uint32_t i = 0; i < DECISIONS; i++)
            serve(fleet, open, at++, now += 500000);
        windows[w] = (double)(now_ns() - start) / DECISIONS;
    }
    struct kvr_ending ending = {.outcome = KVR_OUTCOME_SUCCESS, .status = 200};
    for (uint32_t i = 0; i < PER_REPLICA * fleet->replicas; i++)
        kvr_router_finish(&fleet->router, now, open[i], &ending);
    qsort(windows, WINDOWS, sizeof *windows, compare);
    return windows[WINDOWS / 2];
}

/* prefix_affinity with load_min acts on prompts of CHAIN blocks, and p2c, if asked, is a shadow. */
static double requests(bool shadow)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, 8);
    struct kvr_router *router = &fleet.router;
    if (shadow)
        load_into(kvr_router_slot(router, kvr_role_shadow(0)), KVR_SCRIPT_POLICY, "p2c");
    load_into(kvr_router_slot(router, KVR_ROLE_POLICY), KVR_SCRIPT_POLICY, "prefix_affinity");
    load_into(kvr_router_slot(router, KVR_ROLE_SPILL), KVR_SCRIPT_SPILL, "load_min");
    kvr_router_scripts_changed(router);
    double ns = measure_requests(&fleet);
    free_fleet(&fleet);
    return ns;
}

static double prefix_affinity_alone(void)
{
    struct fleet fleet = {0};
    make_fleet(&fleet, 8);
    struct kvr_slot *policy = load(&fleet, KVR_SCRIPT_POLICY, "prefix_affinity");
    double ns = measure(&fleet, policy, NULL);
    kvr_slot_destroy(policy);
    free_fleet(&fleet);
    return ns;
}

int main(void)
{
    static const char *const policies[] = {
        "round_robin",
        "least_outstanding",
        "p2c",
        "session_affinity",
        "bounded_session_affinity",
        "prefix_hash",
        "prefix_affinity",
        "cacheroute",
        "preble_cap",
        "dualmap",
        "preble_e2",
        "min_ttft",
        "lmetric",
        "smetric",
        "llmd_sticky",
        "dynamo_cost",
        "cache_aware",
    };
    static const char *const spills[] = {"off", "load_min", "load_mean", "tokens", "hit_rate"};
    kvr_guard_start();
    decision(8, "decision_ns");
    decision(1, "decision_1_ns");
    decision(64, "decision_64_ns");
    planned(8, "decision_planned_ns");
    planned(30, "decision_planned_30_ns");
    print("request_ns", requests(false));
    print("request_with_shadow_ns", requests(true));
    double fill = fill_only(8);
    print("fill_ns", fill);
    print("fill_30_ns", fill_only(30));
    print("fill_64_ns", fill_only(64));
    for (size_t i = 0; i < sizeof policies / sizeof *policies; i++)
        part(policies[i], NULL, fill);
    double alone = prefix_affinity_alone();
    for (size_t i = 0; i < sizeof spills / sizeof *spills; i++)
        part("prefix_affinity", spills[i], alone);
    kvr_guard_stop();
    return 0;
}
