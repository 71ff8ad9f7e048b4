#include "script_check.h"

#include <math.h>
#include <stdio.h>

#include "memory.h"

#define ROWS_MAX          64
#define VNODES            8       /* enough for an order; a full ring takes 1 ms to build */
#define LOAD_INSTRUCTIONS 5000000 /* evaluate and init; about 20 ms of interpreter */
#define CALL_INSTRUCTIONS 1000000
#define REASONS_MAX       12 /* different ones: more means that they are not constant */
#define SERIALS           3  /* times each scene is shown */
#define CHECK_SEED        20260801u

/* ---- scenes ---------------------------------------------------------------------------------- */

struct stage {
    struct kvr_picture picture;
    struct kvr_hash_ring ring;
    struct kvr_block_key chain[40];
};

static void set_row(struct kvr_picture *picture, uint32_t i, double in_flight)
{
    picture->ids[i] = 1000u + i;
    picture->weights[i] = 1.0;
    picture->rows[i] = (struct kvr_replica_view){
        .weight = 1.0,
        .ramp = 1.0,
        .load = in_flight,
        .in_flight = in_flight,
        .capacity = (double)INFINITY,
        .uncached_tokens = in_flight * 500.0,
        .remote_in_flight = (double)NAN,
        .remote_age_ms = (double)NAN,
        .age_ms = 60000.0,
        .running = (double)NAN,
        .waiting = (double)NAN,
        .kv_usage = (double)NAN,
        .engine_hit_rate = (double)NAN,
        .signals_age_ms = (double)NAN,
        .resident_tokens = (double)NAN,
        .ttft_ms = (double)NAN,
        .error_rate = (double)NAN,
        .prefill_tokens_per_s = (double)NAN,
        .key_age_ms = (double)NAN,
        .id = i,
        .name = 77u + i,
        .operational = 3,
        .administrative = 2,
        .available = true,
    };
}

static void set_match(struct kvr_picture *picture, uint32_t i, uint32_t blocks)
{
    picture->rows[i].match_blocks = blocks;
    picture->rows[i].match_tokens = blocks * 16.0;
    picture->rows[i].key_age_ms = 900.0;
    picture->rows[i].assigned = 1;
}

static void take_away(struct kvr_picture *picture, uint32_t i)
{
    picture->rows[i].available = false;
    picture->rows[i].operational = 0;
}

static void show_none(struct kvr_picture *picture, uint32_t rows)
{
    (void)picture;
    (void)rows;
}

static void show_equal(struct kvr_picture *picture, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++)
        set_row(picture, i, 0.0);
}

static void show_away(struct kvr_picture *picture, uint32_t rows)
{
    show_equal(picture, rows);
    for (uint32_t i = 0; i < rows; i++)
        take_away(picture, i);
}

static void show_last_of_many(struct kvr_picture *picture, uint32_t rows)
{
    show_away(picture, rows);
    set_row(picture, 5, 3.0);
}

static void show_matches(struct kvr_picture *picture, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++)
        set_row(picture, i, i % 5);
    set_match(picture, 1, 12);
    set_match(picture, 2, 30);
    set_match(picture, 3, 30);
    picture->rows[2].in_flight = picture->rows[2].load = 40.0;
    take_away(picture, 3);
    picture->view.planned = 1;
}

static void show_busy(struct kvr_picture *picture, uint32_t rows)
{
    for (uint32_t i = 0; i < rows; i++) {
        struct kvr_replica_view *row = &picture->rows[i];
        set_row(picture, i, i * 7 % 23);
        picture->weights[i] = row->weight = 1.0 + i % 3;
        row->ramp = i % 4 ? 1.0 : 0.25;
        row->load = row->in_flight / (row->weight * row->ramp);
        row->running = row->in_flight;
        row->waiting = i % 2;
        row->kv_usage = 0.01 * i;
        row->engine_hit_rate = 0.5;
        row->signals_age_ms = 400.0;
        row->ttft_ms = 80.0 + i;
        row->error_rate = 0.01;
        row->prefill_tokens_per_s = 9000.0;
        set_match(picture, i, i * 5 % 41);
        if (i % 9 == 4)
            take_away(picture, i);
    }
}

static void show_extremes(struct kvr_picture *picture, uint32_t rows)
{
    static const double numbers[] = {(double)NAN, (double)INFINITY, 1e308, 0.0, 4294967295.0};
    for (uint32_t i = 0; i < rows; i++) {
        struct kvr_replica_view *row = &picture->rows[i];
        double number = numbers[i % 5];
        set_row(picture, i, 1e9 * i);
        row->uncached_tokens = row->remote_in_flight = row->age_ms = number;
        row->running = row->waiting = row->kv_usage = row->engine_hit_rate = number;
        row->ttft_ms = row->error_rate = row->prefill_tokens_per_s = number;
        row->match_blocks = row->resident_blocks = i % 2 ? UINT32_MAX : 0;
        row->match_tokens = row->resident_tokens = i % 2 ? 1e308 : number;
    }
    picture->request.prompt_tokens = picture->request.max_tokens = 1e308;
    picture->request.slo_ttft_ms = (double)INFINITY;
    picture->request.serial = UINT32_MAX;
}

static const struct {
    const char *name;
    uint32_t rows;
    void (*show)(struct kvr_picture *, uint32_t rows);
} scenes[] = {
    {"no replica", 0, show_none},
    {"one replica", 1, show_equal},
    {"one replica, not available", 1, show_away},
    {"four equal replicas", 4, show_equal},
    {"four replicas, none available", 4, show_away},
    {"eight replicas, one available", 8, show_last_of_many},
    {"eight replicas with matches", 8, show_matches},
    {"64 busy replicas", 64, show_busy},
    {"ten replicas with extreme numbers", 10, show_extremes},
};

#define SCENES (sizeof scenes / sizeof scenes[0])
#define STEPS  (SCENES * SERIALS)

static void show_request(struct stage *stage, uint32_t turn)
{
    bool known = turn != 1; /* the second of three: no session, no prompt, nothing */
    stage->picture.request = (struct kvr_request_view){
        .now_ms = 1000.0 * turn,
        .prompt_bytes = known ? 2600.0 : 0.0,
        .prompt_tokens = known ? 650.0 : 0.0,
        .max_tokens = known ? 128.0 : (double)NAN,
        .slo_ttft_ms = (double)NAN,
        .chain = known ? stage->chain : NULL,
        .chain_len = known ? 40 : 0,
        .block_bytes = 64,
        .serial = turn,
        .model = 1,
        .session = known ? 11 + turn : 0,
        .tenant = known ? 3 : 0,
        .routing_key = known ? 11 + turn : 0,
        .turn = known ? turn : 0,
        .attempt = turn,
        .stream = turn % 2,
    };
}

static void show_step(struct stage *stage, uint32_t step)
{
    struct kvr_picture *picture = &stage->picture;
    uint32_t scene = step / SERIALS;
    picture->view.planned = 0;
    show_request(stage, step % SERIALS);
    scenes[scene].show(picture, scenes[scene].rows);
    kvr_picture_summarise(picture, scenes[scene].rows);
    struct kvr_ring_member members[ROWS_MAX];
    for (uint32_t i = 0; i < scenes[scene].rows; i++)
        members[i] = (struct kvr_ring_member){picture->ids[i], picture->weights[i]};
    if (step % SERIALS == 0)
        kvr_hash_ring_build(&stage->ring, members, scenes[scene].rows, VNODES);
    picture->ring = &stage->ring;
}

static void stage_init(struct stage *stage)
{
    kvr_picture_init(&stage->picture, ROWS_MAX);
    kvr_hash_ring_init(&stage->ring);
    for (uint32_t i = 0; i < 40; i++)
        stage->chain[i] = (struct kvr_block_key){2654435761u * (i + 1), i};
}

static void stage_deinit(struct stage *stage)
{
    kvr_hash_ring_deinit(&stage->ring);
    kvr_picture_deinit(&stage->picture);
}

/* ---- trying ---------------------------------------------------------------------------------- */

/* What one scratch run answered, step by step. */
struct run {
    struct kvr_script *script;
    struct kvr_decision decisions[STEPS];
};

static int fail(const struct run *run, int rc, const char *when, struct kvr_error *error)
{
    return kvr_error_set(error, rc == KVR_E_RUNAWAY ? rc : KVR_E_SCRIPT, "%s (checked with %s)",
                         run->script->vm->error, when);
}

static bool first_available(const struct kvr_picture *picture, uint32_t *index)
{
    for (uint32_t i = 0; i < picture->view.count; i++)
        if (picture->rows[i].available) {
            *index = i;
            return true;
        }
    return false;
}

static int try_steps(struct run *run, struct stage *stage, struct kvr_error *error)
{
    for (uint32_t step = 0; step < STEPS; step++) {
        uint32_t preferred = 0;
        show_step(stage, step);
        bool any = first_available(&stage->picture, &preferred);
        run->decisions[step] = (struct kvr_decision){.verdict = KVR_VERDICT_NONE};
        if (run->script->kind == KVR_SCRIPT_SPILL && !any)
            continue; /* nothing to spill from: C does not ask */
        run->script->vm->instructions = CALL_INSTRUCTIONS;
        int rc = kvr_script_decide(run->script, preferred, &run->decisions[step]);
        if (rc)
            return fail(run, rc, scenes[step / SERIALS].name, error);
    }
    return 0;
}

static int try_observe(struct run *run, struct stage *stage, struct kvr_error *error)
{
    for (uint32_t kind = 0; kind < 4; kind++) {
        bool done = kind >= 2;
        stage->picture.observation = (struct kvr_observation){
            .now_ms = 5000.0,
            .ttft_ms = kind ? 90.0 : (double)NAN,
            .total_ms = done ? 800.0 : (double)NAN,
            .prompt_tokens = kind == 2 ? 650.0 : (double)NAN,
            .cached_tokens = kind == 2 ? 480.0 : (double)NAN,
            .output_tokens = kind == 2 ? 100.0 : (double)NAN,
            .kind = kind,
            .replica = 2,
            .session = 11,
            .routing_key = 11,
            .match_blocks = 30,
            .model = 1,
        };
        run->script->vm->instructions = CALL_INSTRUCTIONS;
        int rc = kvr_script_observe(run->script);
        if (rc)
            return fail(run, rc, "an observation", error);
    }
    return 0;
}

static int try_hand_over(struct run *from, struct run *to, struct kvr_error *error)
{
    struct kvr_buffer state = {0};
    from->script->vm->instructions = CALL_INSTRUCTIONS;
    int rc = kvr_script_export(from->script, &state);
    if (rc) {
        fail(from, rc, "P.export", error);
    } else {
        to->script->vm->instructions = CALL_INSTRUCTIONS;
        rc = kvr_script_import(to->script, kvr_buffer_slice(&state));
        if (rc)
            fail(to, rc, "P.import of what P.export gave", error);
    }
    kvr_buffer_deinit(&state);
    return rc;
}

static bool same(const struct kvr_decision *a, const struct kvr_decision *b)
{
    return a->verdict == b->verdict && a->reason == b->reason && a->affine == b->affine &&
           (a->verdict != KVR_VERDICT_PICK || a->index == b->index);
}

static int compare(const struct run *a, const struct run *b, struct kvr_error *error)
{
    for (uint32_t step = 0; step < STEPS; step++)
        if (!same(&a->decisions[step], &b->decisions[step]))
            return kvr_error_set(error, KVR_E_SCRIPT,
                                 "%s: two runs from one seed disagree (checked with %s)",
                                 a->script->shown, scenes[step / SERIALS].name);
    if (a->script->reasons_count > REASONS_MAX)
        return kvr_error_set(error, KVR_E_SCRIPT, "%s: more than %d reasons: they must be constant",
                             a->script->shown, REASONS_MAX);
    return 0;
}

static int try_twice(struct run runs[2], struct stage *stage,
                     const struct kvr_script_source *source, const struct kvr_vm_options *options,
                     struct kvr_error *error)
{
    for (int i = 0; i < 2; i++) {
        runs[i].script = kvr_script_create(source, options, error);
        if (!runs[i].script)
            return KVR_E_SCRIPT;
        int rc = try_steps(&runs[i], stage, error);
        if (!rc)
            rc = try_observe(&runs[i], stage, error);
        if (rc)
            return rc;
    }
    int rc = compare(&runs[0], &runs[1], error);
    return rc ? rc : try_hand_over(&runs[0], &runs[1], error);
}

int kvr_script_check(const struct kvr_script_source *source, size_t memory_bytes,
                     struct kvr_error *error)
{
    struct stage stage;
    stage_init(&stage);
    struct kvr_vm_options options = {.picture = &stage.picture,
                                     .seed = CHECK_SEED,
                                     .memory_bytes = memory_bytes,
                                     .counted = true,
                                     .instructions = LOAD_INSTRUCTIONS};
    struct run *runs = kvr_alloc_zero(2, sizeof *runs);
    int rc = try_twice(runs, &stage, source, &options, error);
    kvr_script_destroy(runs[1].script);
    kvr_script_destroy(runs[0].script);
    kvr_free(runs);
    stage_deinit(&stage);
    return rc;
}
