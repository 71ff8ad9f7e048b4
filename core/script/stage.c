#include "stage.h"

#include <math.h>
#include <stddef.h>

#define ROWS_MAX 64
#define VNODES   8 /* enough for an order; a full ring takes 1 ms to build */
#define SHOWINGS 3

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
        .prefill_tokens = in_flight * 500.0 + picture->request.prompt_tokens,
        .active_tokens = in_flight * 700.0,
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
        .output_tokens = (double)NAN,
        .token_ms = (double)NAN,
        .recent_uncached_tokens = in_flight * 5000.0,
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
    picture->rows[i].prefill_tokens -= blocks * 16.0;
    picture->rows[i].key_age_ms = 900.0;
    picture->rows[i].assigned = 1;
    picture->rows[i].active_blocks = 3 * blocks;
    picture->rows[i].active_match_blocks = blocks / 2;
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
        row->output_tokens = 200.0;
        row->token_ms = 20.0;
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
        row->prefill_tokens = row->active_tokens = number;
        row->running = row->waiting = row->kv_usage = row->engine_hit_rate = number;
        row->ttft_ms = row->error_rate = row->prefill_tokens_per_s = number;
        row->output_tokens = row->token_ms = row->recent_uncached_tokens = number;
        row->match_blocks = row->resident_blocks = i % 2 ? UINT32_MAX : 0;
        row->active_blocks = row->active_match_blocks = row->match_blocks;
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
    {"one replica", 1, show_equal}, /* first: what any script is written for */
    {"no replica", 0, show_none},
    {"one replica, not available", 1, show_away},
    {"four equal replicas", 4, show_equal},
    {"four replicas, none available", 4, show_away},
    {"eight replicas, one available", 8, show_last_of_many},
    {"eight replicas with matches", 8, show_matches},
    {"64 busy replicas", 64, show_busy},
    {"ten replicas with extreme numbers", 10, show_extremes},
};

_Static_assert(sizeof scenes / sizeof scenes[0] * SHOWINGS == KVR_STAGE_STEPS, "scenes");

const char *kvr_stage_scene(uint32_t step)
{
    return scenes[step / SHOWINGS].name;
}

static void show_request(struct kvr_stage *stage, uint32_t turn)
{
    bool known = turn != 1; /* the second of three: no session, no prompt, nothing */
    stage->picture.request = (struct kvr_request_view){
        .now_ms = 1000.0 * turn,
        .prompt_bytes = known ? 2600.0 : 0.0,
        .prompt_tokens = known ? 650.0 : 0.0,
        .max_tokens = known ? 128.0 : (double)NAN,
        .slo_ttft_ms = (double)NAN,
        .chain = known ? stage->chain : NULL,
        .chain_len = known ? KVR_STAGE_CHAIN : 0,
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

void kvr_stage_show(struct kvr_stage *stage, uint32_t step)
{
    struct kvr_picture *picture = &stage->picture;
    uint32_t scene = step / SHOWINGS;
    picture->view.planned = 0;
    show_request(stage, step % SHOWINGS);
    scenes[scene].show(picture, scenes[scene].rows);
    kvr_picture_summarise(picture, scenes[scene].rows);
    struct kvr_ring_member members[ROWS_MAX];
    for (uint32_t i = 0; i < scenes[scene].rows; i++)
        members[i] = (struct kvr_ring_member){picture->ids[i], picture->weights[i]};
    if (step % SHOWINGS == 0)
        kvr_hash_ring_build(&stage->ring, members, scenes[scene].rows, VNODES);
    picture->ring = &stage->ring;
}

void kvr_stage_init(struct kvr_stage *stage)
{
    kvr_picture_init(&stage->picture, ROWS_MAX);
    kvr_hash_ring_init(&stage->ring);
    for (uint32_t i = 0; i < KVR_STAGE_CHAIN; i++)
        stage->chain[i] = (struct kvr_block_key){2654435761u * (i + 1), i};
}

void kvr_stage_deinit(struct kvr_stage *stage)
{
    kvr_hash_ring_deinit(&stage->ring);
    kvr_picture_deinit(&stage->picture);
}

void kvr_stage_observe(struct kvr_stage *stage, uint32_t kind)
{
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
}
