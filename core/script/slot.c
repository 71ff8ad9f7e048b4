#include "slot_state.h"

#include <stdio.h>

#include "log.h"
#include "memory.h"
#include "script_check.h"

struct kvr_slot *kvr_slot_create(enum kvr_script_kind kind, struct kvr_picture *picture,
                                 uint64_t seed)
{
    struct kvr_slot *slot = kvr_alloc_zero(1, sizeof *slot);
    slot->kind = kind;
    slot->role = kind == KVR_SCRIPT_POLICY ? "policy" : "spill";
    slot->picture = picture;
    slot->seed = seed;
    return slot;
}

void kvr_slot_destroy(struct kvr_slot *slot)
{
    kvr_slot_clear(slot);
    kvr_free(slot);
}

void kvr_slot_set_role(struct kvr_slot *slot, const char *role)
{
    slot->role = role;
}

void kvr_slot_limit_memory(struct kvr_slot *slot, size_t bytes)
{
    slot->memory_bytes = bytes;
}

void kvr_slot_clear(struct kvr_slot *slot)
{
    kvr_script_destroy(slot->script);
    slot->script = NULL;
    slot->quarantined = false;
    kvr_buffer_deinit(&slot->text);
    kvr_overrides_deinit(&slot->overrides);
}

/* ---- loading --------------------------------------------------------------------------------- */

struct kvr_vm_options kvr_slot_vm_options(const struct kvr_slot *slot)
{
    /* A generation must not repeat the numbers of the one before. */
    return (struct kvr_vm_options){.picture = slot->picture,
                                   .seed = slot->seed + kvr_mix64(slot->generation + 1),
                                   .memory_bytes = slot->memory_bytes};
}

/* What the old generation has learned, for the new one. A failure to export loses it, but does not
 * keep a repaired text out; a failure to import refuses the new text. */
static int hand_over(struct kvr_slot *slot, struct kvr_script *next, struct kvr_error *error)
{
    struct kvr_script *old = slot->script;
    if (!old || !old->vm || !next->imports)
        return 0;
    struct kvr_buffer state = {0};
    int rc = kvr_script_export(old, &state);
    if (rc) {
        kvr_log(KVR_LOG_WARN, "%s %s: nothing is handed over: %s", slot->role, old->info.name,
                old->vm->error);
        state.len = 0;
        if (rc == KVR_E_RUNAWAY)
            old->vm = NULL;
    }
    rc = kvr_script_import(next, kvr_buffer_slice(&state));
    if (rc)
        kvr_error_set(error, rc, "%s", next->vm->error);
    kvr_buffer_deinit(&state);
    return rc;
}

static bool is_same(const struct kvr_script *a, struct kvr_slice name, struct kvr_slice path)
{
    return kvr_slice_is(path, a->info.path) &&
           (path.len || name.len == 0 || kvr_slice_is(name, a->info.name));
}

static void put_in_force(struct kvr_slot *slot, struct kvr_script *next)
{
    if (!slot->script ||
        !is_same(slot->script, kvr_slice_of(next->info.name), kvr_slice_of(next->info.path))) {
        slot->at_choice = slot->counters;
        slot->own_refusals = 0;
    }
    kvr_script_destroy(slot->script);
    slot->script = next;
    next->info.generation = ++slot->generation;
    slot->quarantined = false;
    slot->failures_at = 0;
    memset(slot->failures, 0, sizeof slot->failures);
    slot->log_lines = 0;
    slot->last_error[0] = '\0';
    slot->counters.loads++;
}

static int refuse(struct kvr_slot *slot, int rc, const struct kvr_error *error)
{
    slot->counters.refusals++;
    snprintf(slot->last_error, sizeof slot->last_error, "%s", error->text);
    return rc;
}

void kvr_slot_refused(struct kvr_slot *slot, const struct kvr_error *error)
{
    slot->own_refusals += slot->script != NULL;
    (void)refuse(slot, error->code, error);
}

static int try_load(struct kvr_slot *slot, const struct kvr_script_source *source,
                    struct kvr_script **next, struct kvr_error *error)
{
    int rc = kvr_script_check(source, slot->memory_bytes, error);
    if (rc)
        return rc;
    struct kvr_vm_options options = kvr_slot_vm_options(slot);
    *next = kvr_script_create(source, &options, error);
    return *next ? hand_over(slot, *next, error) : KVR_E_SCRIPT;
}

static bool in_force(const struct kvr_slot *slot, struct kvr_slice name, struct kvr_slice text,
                     const struct kvr_overrides *overrides)
{
    return slot->script && !slot->quarantined && slot->script->vm &&
           (name.len == 0 || kvr_slice_is(name, slot->script->info.name)) &&
           kvr_slice_equal(text, kvr_buffer_slice(&slot->text)) &&
           kvr_overrides_equal(overrides, &slot->overrides);
}

struct kvr_slot_next {
    struct kvr_script *script; /* NULL: what is in force already */
    struct kvr_buffer text;
    struct kvr_overrides overrides;
};

/* Takes over `overrides`. */
static struct kvr_slot_next *prepare(struct kvr_slot *slot, struct kvr_slice name,
                                     struct kvr_slice path, struct kvr_slice text,
                                     struct kvr_overrides *overrides, struct kvr_error *error)
{
    struct kvr_slot_next *next = kvr_alloc_zero(1, sizeof *next);
    next->overrides = *overrides;
    if (in_force(slot, name, text, overrides))
        return next;
    struct kvr_script_source source = {slot->kind,      name, path, text, overrides->list,
                                       overrides->count};
    int rc = try_load(slot, &source, &next->script, error);
    if (rc) {
        error->code = rc;
        if (slot->script && is_same(slot->script, name, path))
            slot->own_refusals++;
        (void)refuse(slot, rc, error);
        kvr_slot_drop(next);
        return NULL;
    }
    kvr_buffer_append_slice(&next->text, text);
    return next;
}

struct kvr_slot_next *kvr_slot_prepare(struct kvr_slot *slot, struct kvr_slice name,
                                       struct kvr_slice path, struct kvr_slice text,
                                       const struct kvr_script_param *params, uint32_t params_count,
                                       struct kvr_error *error)
{
    struct kvr_overrides overrides = {.count = 0};
    if (kvr_overrides_merge(&overrides, params, params_count, error)) {
        kvr_overrides_deinit(&overrides);
        (void)refuse(slot, error->code, error);
        return NULL;
    }
    return prepare(slot, name, path, text, &overrides, error);
}

void kvr_slot_put(struct kvr_slot *slot, struct kvr_slot_next *next)
{
    if (next->script) {
        put_in_force(slot, next->script);
        kvr_buffer_deinit(&slot->text);
        slot->text = next->text;
        kvr_overrides_deinit(&slot->overrides);
        slot->overrides = next->overrides;
        *next = (struct kvr_slot_next){0};
    }
    slot->last_error[0] = '\0';
    kvr_slot_drop(next);
}

void kvr_slot_drop(struct kvr_slot_next *next)
{
    if (next->script)
        kvr_script_destroy(next->script);
    kvr_buffer_deinit(&next->text);
    kvr_overrides_deinit(&next->overrides);
    kvr_free(next);
}

const struct kvr_script_info *kvr_slot_next_info(const struct kvr_slot *slot,
                                                 const struct kvr_slot_next *next)
{
    return next->script ? &next->script->info : &slot->script->info;
}

int kvr_slot_load(struct kvr_slot *slot, struct kvr_slice name, struct kvr_slice path,
                  struct kvr_slice text, const struct kvr_script_param *params,
                  uint32_t params_count, struct kvr_error *error)
{
    struct kvr_error local = {0};
    error = error ? error : &local;
    struct kvr_slot_next *next =
        kvr_slot_prepare(slot, name, path, text, params, params_count, error);
    if (!next)
        return error->code;
    kvr_slot_put(slot, next);
    return 0;
}

static int load_same(struct kvr_slot *slot, struct kvr_slice text,
                     const struct kvr_script_param *params, uint32_t params_count,
                     struct kvr_error *error)
{
    struct kvr_error local = {0};
    struct kvr_overrides overrides = {.count = 0};
    error = error ? error : &local;
    if (!slot->script)
        return kvr_error_set(error, KVR_E_STATE, "no %s is in force", slot->role);
    int rc = kvr_overrides_merge(&overrides, slot->overrides.list, slot->overrides.count, error);
    if (!rc)
        rc = kvr_overrides_merge(&overrides, params, params_count, error);
    if (rc) {
        kvr_overrides_deinit(&overrides);
        return refuse(slot, rc, error);
    }
    const struct kvr_script_info *info = &slot->script->info;
    struct kvr_slot_next *next =
        prepare(slot, kvr_slice_of(info->name), kvr_slice_of(info->path), text, &overrides, error);
    if (!next)
        return error->code;
    kvr_slot_put(slot, next);
    return 0;
}

int kvr_slot_reload(struct kvr_slot *slot, struct kvr_slice text, struct kvr_error *error)
{
    return load_same(slot, text, NULL, 0, error);
}

int kvr_slot_set_params(struct kvr_slot *slot, const struct kvr_script_param *params,
                        uint32_t params_count, struct kvr_error *error)
{
    return load_same(slot, kvr_buffer_slice(&slot->text), params, params_count, error);
}

/* ---- what others see ------------------------------------------------------------------------- */

const struct kvr_script_info *kvr_slot_info(const struct kvr_slot *slot)
{
    return slot->script ? &slot->script->info : NULL;
}

const struct kvr_script_counters *kvr_slot_counters(const struct kvr_slot *slot)
{
    return &slot->counters;
}

struct kvr_script_counters kvr_slot_since_chosen(const struct kvr_slot *slot)
{
    struct kvr_script_counters since = slot->counters;
    const struct kvr_script_counters *before = &slot->at_choice;
    since.calls -= before->calls;
    since.errors -= before->errors;
    since.bad_results -= before->bad_results;
    since.slow -= before->slow;
    since.runaways -= before->runaways;
    since.memory -= before->memory;
    since.loads -= before->loads;
    since.quarantines -= before->quarantines;
    since.refusals = slot->own_refusals;
    return since;
}

const char *kvr_slot_last_error(const struct kvr_slot *slot)
{
    return slot->last_error;
}

bool kvr_slot_quarantined(const struct kvr_slot *slot)
{
    return slot->quarantined;
}

size_t kvr_slot_memory(const struct kvr_slot *slot)
{
    return slot->script && slot->script->vm ? slot->script->vm->heap.bytes : 0;
}
