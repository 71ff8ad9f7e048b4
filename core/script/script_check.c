#include "script_check.h"

#include "memory.h"
#include "stage.h"

#define LOAD_INSTRUCTIONS 5000000 /* evaluate and init; about 20 ms of interpreter */
#define CALL_INSTRUCTIONS 1000000
#define REASONS_MAX       12 /* different ones: more means that they are not constant */
#define CHECK_SEED        20260801u

/* What one scratch run answered, step by step. */
struct run {
    struct kvr_script *script;
    struct kvr_decision decisions[KVR_STAGE_STEPS];
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

static int try_steps(struct run *run, struct kvr_stage *stage, struct kvr_error *error)
{
    for (uint32_t step = 0; step < KVR_STAGE_STEPS; step++) {
        uint32_t preferred = 0;
        kvr_stage_show(stage, step);
        bool any = first_available(&stage->picture, &preferred);
        run->decisions[step] = (struct kvr_decision){.verdict = KVR_VERDICT_NONE};
        if (run->script->kind == KVR_SCRIPT_SPILL && !any)
            continue; /* nothing to spill from: C does not ask */
        run->script->vm->instructions = CALL_INSTRUCTIONS;
        int rc = kvr_script_decide(run->script, preferred, &run->decisions[step]);
        if (rc)
            return fail(run, rc, kvr_stage_scene(step), error);
    }
    return 0;
}

static int try_observe(struct run *run, struct kvr_stage *stage, struct kvr_error *error)
{
    for (uint32_t kind = 0; kind < 4; kind++) {
        kvr_stage_observe(stage, kind);
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
    for (uint32_t step = 0; step < KVR_STAGE_STEPS; step++)
        if (!same(&a->decisions[step], &b->decisions[step]))
            return kvr_error_set(error, KVR_E_SCRIPT,
                                 "%s: two runs from one seed disagree (checked with %s)",
                                 a->script->shown, kvr_stage_scene(step));
    if (a->script->reasons_count > REASONS_MAX)
        return kvr_error_set(error, KVR_E_SCRIPT, "%s: more than %d reasons: they must be constant",
                             a->script->shown, REASONS_MAX);
    return 0;
}

static int try_twice(struct run runs[2], struct kvr_stage *stage,
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
    struct kvr_stage stage;
    kvr_stage_init(&stage);
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
    kvr_stage_deinit(&stage);
    return rc;
}
